"""Names that are everyday English words too: the overlap of the name lists with a dictionary.

Made once from Faker's name lists and the lower-case words of Debian's `american-english-small`
(public domain). Such a word counts as a name only beside another sign.
"""

from typing import Final

from streams.redaction.detect.words import words

EVERYDAY: Final = words(
    """
    abate abbey ace add admiral ah alas albino ale aline ally almond alpha alto amber amble amir
    among an angel angelic ani anon ants arch archer arenas ares aria arias art arts asks aspen
    astride atlas august aura author autumn azalea babe baby back backer bail baker balds bale
    ball ban banks barb barber bare barman baron basil bass bath bean beard beat bee beer bell
    bender bent bents berry best beta bigot bill bills binder bins birch bird bishop bite bitten
    black blanch blaze blessing bliss block blossom blot bob bode bond bones bonnet boon booth
    bore boss bourgeois bowler brain branch brand brands brandy bravo bray brick bridge bridges
    bright brink brook brooks brown browning buck bud buddy bull bunk burger burns burr burrows
    bury bush butcher butler butte caddie cadence cam camp camps can canal canals candy canning
    cannon canny cant canyon cap caprice captain car cares carol carpenter carrier carry carton
    case cases cash chambers champ champagne chance char charity chase chastity cherish cherry
    chi chin china chip christen chuck church cinnamon clay clear cleave cliff close cock collie
    colon colonel colt comas combs comfort comment commodore company con constant contractor
    convey cook cools cooper coral cord cornet corral council cousin cousins cox coy crane creed
    crooks cross cruise crystal cumming curry curt daisy dam dare darling dash date dawn day
    deacon dean deep delta den derrick destiny diamond die dimple din diver divine dock doctor
    dodo doe doll dolly don dos dot dove downing downs drew dries drum duff duke dusty each earl
    early earnest ebb ebony echo eddy edit elder else ember emerald emeralds emir emit era
    essence ether eve ever fair fairy faith fall fancy fanning fares farmer fate fawn fed fee
    feline feller fern ferry field fielding fields finch fisher fleck fleet flint flood floor
    flora flowers font foot ford forest forget forum foster fount fox franc frank franks freely
    french fresh friend frisk frost fry fuller gage gal gala gale gall gamble garland garnet
    garret garrison gates gauge gay gee gene general genesis genie gent gentry gill ginger glass
    glasses glen goblet golden good gore gorge governor grace grand grant gravel graves gray
    green greet grey grill grimes grit gross grove grunt guard gun gunner gunning gust gut guy
    hacker hale hall halls ham hammer hand handler handy harden hardy hare haring harm harmony
    harry harsh hart hasty haven hay hays hazel hearty heath heather heaven held hell helm hence
    hens herb herd heron herring hicks hill hills hind ho hoes holder holler holly honing hood
    hoof hook hoop hope horn house hove huff hug hull hung hunt hunter hurt icy ii immaculate
    infant innocent ion iris ivory ivy jack jacks jade jail jarred jay jet jewel job joke
    journey joy judge jug junior junk justice keeling ken key kick kidney killer kind kindle
    king kink kiss kit kitty knight knoll lacy lad lady lamb lance lander lane lark lass laurel
    lavender law lawless lawyer leach leafy lean leaner lee leech leek lemon less levy liberty
    lie lies lily line link lips list little llamas loan lofts lone long loon looney loot lope
    lopes lord lore lot love low loyal lucid lucky luster lute lynch lyric mace macho mad madden
    made mads magnolia major male mall mallet man mane manly manning mans mar mare mares maria
    marina marine mark marks marry mars marsh marshal mart martial martin marvel mas mason mast
    master mat mate math mats matt matts maverick maxim maxima may mayor meadow meadows media
    melody mentor merchant mercy merrily merry metro mike mile miles miller mills miner minor
    miracle mist misty mitt moan moles monk monks moody moon moons moor moors more moss mountain
    mule must my nail newt newton nick nickels nil noble north nova oak octave odd odds olive
    opal oral orange orchard ova owe pace page pages pal pall palm palomino pansy pant pap
    parent park parks parsons parts pastor pat pate patience patty paw payer peace peacock pearl
    peck peer pellet penny pepper per peter peters petty phoenix pi pier pierce pike pink plank
    plaza pleas pleasant pole polo pop pope poppy porter post potter potters power powers
    precious press price priest prince princess prosper prudence puck purity put queen quill
    rafter raid rails ram ransom ravel raven ray read reader real reason red redden reed rein
    reis renders rice rich richer riddle ridge rim ring river rivers roach roar rob robin rock
    rocky rod roe roll roman room roots rose rosemary rosy rout royal ruby ruddy rune rush rust
    rusty rut sad safari saga sage sager said saint salami sales sally salmon sandal sands sandy
    sane sang sari savage scarlet sears sellers sera serenity server seven sever shade sharp
    sheikh shepherd sherry shields shine short sierra silk silver sincere sine sing singer
    sinner sire sister sitters skip sky small smart smit smith smolders snow solar sole son
    sonata soon soprano sparks spears spies spring squire stack star stark steer sterling stern
    steward stock stokes stone stoney storey storm storms stormy story stout strand street
    strong sue suits summer summers sunny sunshine supple swift swords tab tack tailor talon tan
    tank tanner tawny tea thatcher the theta tiara ties tilde till tins tiny tone too toots tore
    torrent torrents tours toy trace treasure trinity true turner unique unknown unnamed urban
    us vain valentine valid valves van veer velvet vi vial victor victors victory vigil villa
    viola violet wade wage walker wall walls ward warmer warren warrior wash water waters watt
    watts way weaver weeks wellington wells welter were west white wild wilder will willow wills
    windy wing winter winters wise wit witting wolf wood woods woody worth wren wright yoga
    young zeta
    """
)

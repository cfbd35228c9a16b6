"""Names that are everyday English words too: the overlap of the name lists with a dictionary.

Made once from the name lists and the lower-case words of Debian's `american-english-small`
(public domain). Such a word counts as a name only beside another sign.
"""

from typing import Final

from streams.redaction.detect.words import words

EVERYDAY: Final = words(
    """
    abate abbey abbot able abler ace acre acres add admiral admire age agent ah aide akin alas
    albino ale ales aline all alley ally almond alpha alter alto amber amble amen amend amir
    amirs among an angel angelic anger angers angle angles angst ani anon antic ants apple arch
    archer areas arena arenas ares argue aria arias armor arms art artist arts as ascension ash
    askew asks aspen astride atlas august aura author autumn awe awkward axe aye azalea azure
    babe baby bachelor back backer bacon bad bade badger bail bake baker bald balding balds bale
    bales balk ball balling balls ban band bandy bang bangs banister bank banker banks banner
    banning bannister bar barb barber bard bare barefoot barer barge barges bark barks barley
    barman barns baron barren barrette barrier bars barter base bash basic basil basket bass
    bath battle battles bay bays beach beagle beam beams bean beans bear beard bears beat beaver
    beavers bee beech been beer beers beets began begin belch bell bellow bellows below belt
    bench bender bent bents berry best beta betters beverage bias bible bickers big bigger bigot
    bill billing bills binder binning bins birch bird bishop bite bitten bitter black blacker
    blacksmith blade blades blamer blanch bland blank blanks blaze blazer blessing blew blight
    blind bliss blitz blizzard block blood bloom blossom blot blow blue blunt board boas bob
    bode bodily body bogus bold bologna bolster bolt bombard bond bonds bone bones boney bonier
    bonnet book books boom boon boor boos boot booth boots booze border borders bore bores
    boring born borne boroughs borrow boss both bottom bottoms bough bounds bourbon bourgeois
    bow bowler bowling box boxer bra brace brain brake bran branch brand brands brandy brash
    brasher brass bravo brawn bray brazier bread breed breeding breeze brew brick bride bridge
    bridges bright brim bring brink brinks brisker bristle brittle broach broad broaden broker
    brook brooking brooks broom brothers brow brown browner brownie browning browns brunette
    brunt brush buck buckle buckles bucks bud buddy budge buff bull bullion bulls bump bumpers
    bun bunch bunk bunker bunny buoy burden bureau burger burn burner burns burr burrow burrows
    bury bush bustle butcher butler butt butte butter butters buttery button butts buys buzzard
    bye cable caddie caddy cadence cadet cage calico call callow cam camel camp camper camps can
    canal canals canary cancel candle candy cane canning cannon canny canon cant canter canyon
    cap cape capers capes caprice captain car card cardinal cares cargo carol carp carpenter
    carrier carrion carry cart carton case cases cash casino cassette cast caster castle
    catchings cater cavalier cave caves center centers certain chain chalk chamber chambers
    champ champagne champion chance chancellor channel chapel char charity charter charters
    chase chasten chastity check cheek cheeks cheers cherish cherry chess chestnut chew chi
    chick child chiles chill chin china chip choice chow christen chuck chum church churn chute
    cinnamon circle citizen clack clamp clapper class clause claw clay clear cleave cleaver
    cleaves clerk clever click client cliff climes clinch clink close cloud clover cluck cluster
    clutter coach coast coats cobble cock cocks codding code coffee coffer coffin coil coins
    coke colic collar collie colon colonel colt comas combs come comes comfort commander comment
    commodore common commons companion company con conception cone cones confer conquest
    constant contractor converse convey cook cooks cool cooler cools coop cooper cop cope copes
    copper coral cord cordial cordon cords core cork corn corner corners cornet corning corns
    corpus corral cost cotton couch council counter countess countryman counts courser court
    courts cousin cousins cover covert coward cowboy cox coy coyer cozier cradle craft crafts
    cram cramp crane crank crass crate crater creed creek crew crews crimes crisp croak crochet
    crock crofts crook crooks cross crosser crouch crow crown cruise crumb crumble crumbly
    crystal cue cuff cull cumming cunning curb curd cure curl curling current curry curt curtain
    custard cutter cutting daft daily dais daisy dally dam dame dames dance dancer dandy danker
    dapper dare daring dark darling dart dash date dates daub daunt dawn day days deacon deal
    dean deans dear dearth deck deeds deem deems deep deer degree delay delta delude den dent
    deputy derrick desire dessert destiny deters dew dial dials diamond dice die dike dikes dill
    dills dimmer dimple din dines ditch ditto ditty diver divers divine dock doctor dodge dodo
    doe dole doles doll dollar dolly dolphin dome dominion domino don done doom door dos dot
    double douse dove dowdy down downing downs dragon drain dredge dress dresser drew drier
    dries driver drone dross drown drum drummer dry dryer dub duck due dues duet duff duke dukes
    dull dung dunk dusty duty dye each eager eagle eagles ear earl earls early earnest east
    easterly eaves ebb ebbs ebony echo eddy edge edit elder elders elk elks elms else ember
    emerald emeralds emir emit ensign era essence ether evangelist eve even evener evens ever
    every eves eye factor fail failing fails fair fairy faith falcon fall fallen falling falls
    falter fan fancy fang fanning fares farmer fast fate favor favorite favors fawn fear fears
    feather feathers fed fee fees feline fell feller fellows fells felt felts fender fern ferry
    fester fetter fetters few fiddler field fielding fields figures file files fill filler
    filter finch fine fines finger first fish fisher fitting fix flair flake flakes flattery
    flavors fleck fleet flick flicker flight fling flint flock flood floor flora flower flowers
    fluke flurry fly foil folds folk folks fonder font foot force ford fore foreman forest forge
    forget fort forte fortes forth fortune forum forward foster fought fount fountain fox
    fraction frame franc frank franks fray free freed freely freer frees freeze french fresh
    freshwater friar fried friend friendly fries frisk fritter from frost fruit fruits fry fudge
    fuller furlong furlough furnish furrow furry fury fuss gable gage gain gains gal gala galas
    gale gales gall gallant galley gallon gallop gamble games gander gang garden gardener
    garland garnet garret garrison gash gate gates gathers gauge gaunt gauze gay gayer gear
    gearing gee gene general genesis genie gent gentile gentle gentry gift gill gills gin ginger
    gist given givens glad gladden glade glance glass glasses glaze glen glory gloss goad gobble
    goblet goes going gold golden golds goldsmith gong goo good goodnight goods goodwill goody
    gore gores gorge goring gory gouge gourd governor grace graft gram grams grand grant grass
    grate grave gravel gravely graven graver graves gray grayer grays green greener greenhouse
    greening greet grew grey grief grieve grieves grill grim grimes grimmer grinder grit groom
    grooms gross grosser ground grounds grove groves grow grumbles grunt guard guess guest guild
    guise gull gulley gully gum gun gunner gunning gust gut gutter guy ha hack hacker hacking
    hackney haddock haggard hail hailstone hair hale hales hall hallmark halls halt halter ham
    hamburger hamlet hammer hammers hammock hand handler hands handsome handy hang hanger harbor
    hard harden harder hardy hare haring harm harmony harms harness harp harps harries harrow
    harry harsh hart harts hash haste hasting hasty hatch haven havens hawk hawks hay hays
    hazard hazel head heady heal heap heaps heard heart hearty heater heath heather heaven
    heckler hedge hedges hefty height held hell helm helms helper hem hemming hence hens her
    herald herb herd heritage heron herring hew hews hey hick hicks hide high highland hill
    hillier hills hilt hilts hind hinds hires hiss hitch hives ho hoard hobby hock hocking hoes
    holder holding hole holiday holler hollow holly homes hone honey honing hood hoof hook hooks
    hoop hoops hoots hope hopes hopper hopping horn horseman hose host house hove hovel hover
    how huddle hue huff hug hull human humble hummingbird hung hunger hunt hunter hurdle hurry
    hurt husband husbands husk hyacinth ice icy ii immaculate imperial inch infant inks innocent
    ion iris iron irons island ivory ivy jabs jack jacks jade jail jarred jay jeans jersey
    jester jet jewel job joke jolly journey joy jubilee judge jug jump jumper junior juniper
    junk jury just justice keel keeling keels keen keener keep keepers kelp ken kettle key keys
    kick kidney kill killer killings kin kind kinder kindle kindred king kink kiss kit kitchen
    kitchens kite kitty knack knee knight knights knoll knuckles labor lace lack lacy lad lade
    lady lager lain lair lake lakes lamb lame lamer lamp lance land lander landing lands lane
    lanes lard large larger lark lash lass last latch later laughter laurel lavender law lawless
    lawn laws lawyer lax lay layer layman leach leader leaf leafy league leak leaks lean leaner
    leap learn learned lease ledger lee leech leek leeks leer legacy leisure lemme lemon lemons
    lent leopard less lesser level levels lever levering levy liberty lice lie lies lieu light
    like likens likes lily limb limerick limes liming line linear linen liner lines linger lingo
    link linker lint lion lips list liter lithe little littler lively livers livings llamas
    loader loan lobe lock locker locks locust lodge loft lofts loll lone long longest longs look
    loon looney loop loose loot lope lopes lord lords lore lose loss lot loth loud louder love
    lovely lover loving low lower lowers loyal lucid luck lucky lull lung lush lusher lust
    luster lute lutes lynch lyric mace macho macintosh mad madden made mads magic magnolia
    maiden mailman main mains maize major majors maker male mall mallard mallet man mane manes
    manger mangle mango manly manner manners manning manor mans mantel mantle manual many maple
    maples mar marble march mare mares maria marina marine mariner marines mark marker marks
    maroon marrow marry mars marsh marshal mart martial martin marts marvel mas mash mask mason
    mass mast master masters mat mate mates math mats matt matte matter mattes matts maudlin
    maul maverick maxim maxima may mayor maze meadow meadows meals mealy mean means medal media
    medicine medley meek meeker mellow melody members memory mends mention mentor merchant mercy
    meres merrily merry mess messenger messier messing metro mew mike mikes mile miles milks
    mill miller milliner milling million mills mimes miner mines mingle minion mink minks minor
    minus miracle mire mires miser miss mist misty mitt mitten mitts mix mixer moan moats mock
    mode model mole moles mom money monk monks mood moody moon moons moor mooring moors moos
    moose moots morale more morning moss most motley motto mount mountain mounts mourning mower
    mowers muck muff mulch mule mull munch murders muse music mussel must mustard mutter mutton
    my nail nails nation nations naval navy nay near nearing neat necessary needles needs neigh
    neighbor neighbors nephew nest nestle nettles new newborn newcomer newt newton nice nicely
    nick nickel nickels nicks niece nigh nightingale nil noble nobles noon north northern nova
    null number numbers nurse nutting oak oaks obey ocean octave odd odds ode odor offer officer
    ogle ogles ohm old olden olive omega opal oral orange orchard ore organ otter ours outhouse
    outlaw ova over overall overcast overland overly owe oyster pace pack packer paddock pagan
    page pages painter pair pal pale pall palls palm palms palomino pals pan pancake pane pang
    panning pansy pant panther pap papa papas par paradise pardon pare parent pares parish park
    parks parlor parody parrot parsley parson parsons partridge parts pass pastor pasty pat
    patch pate pates patience patron patty paw pay payer pea peace peach peacock peak peaks peal
    pear pearl pears pease peat peck peek peeks peel peels peer peg pellet pelt pen pence
    pennant penning penny people peoples pepper peppers per perches perks person persons pester
    peter peters petite pets petty pew pheasant phoenix pi piano piccolo pick picket pickle
    pickles pickup pier pierce pigeon pike pikes pile pilgrim pill pillar pilling pillow pilot
    pin pinch pine pines pinion pink pipes pitcher pizza place plain plank plant plants plaster
    plate platter player plaza pleas pleasant plenty plough plum plumb plumber plump poet point
    pointer points pole poles police poling polite polka poll polo poncho pond ponder ponds pool
    poor pop pope poplar poppy porch port porter ports post poster potter potters pound pounds
    pour power powers prairie pray prayer precious president press presto pretty price pride
    pries priest prim prime primer primmer primrose prince princess prior priors proffer profit
    prom proper prophet prosper proud providence province prow prows prude prudence pry puck
    puff puffer pulley pulling puma pun punch punches punt purchase purity put putt putty quail
    quarry quay queen query quick quill quirk quivers race rafter raid raider rail rails rain
    rainier rains rainwater rake rakes ram ramming ramp ran range ranger rank ransom rape rares
    rash rasp raspberry rather rattler rave ravel raven ray razor reach read reader reading
    ready real ream reams reap reaper reason reasons rebel record records rector red redden
    redhead reed reeds reef reel reels regal register rein reining reins reis render renders
    revel revels rhymes rice rich richer riches riddle riddles rider ridge ridges riding rife
    right righter rile riles riling rim ring rink ripple rise risen riser rising risk river
    rivers rivet roach roads roar rob robin robins rock rocker rocks rocky rod rode roe roes
    rogue roles roll roller rolling rolls roman roof rook rooks room root roots rose rosemary
    roses rosier rosy rote rotunda rouge rough round rounds rouse rout row royal royals royalty
    ruby rudder ruddy rude ruder rue ruff ruffing rule rumble rummage rump rumple run rune rung
    runner running runny ruse rush rushing rust rusty rut ruts rye saber sack sacks sad safari
    safe saga sage sager said sailor sailors saint salami sale sales sally salmon salmons salon
    salter sample samples sand sandal sandman sands sandy sane saner sang sari saris saucer
    saucier savage save saver savory say scales scarlet screen screws scurry sea seal seals
    seaman sear sears season seat seats sec see seed seeds self sell seller sellers sells semen
    senior sera serenity sergeant sermons servant server service session sessions setters settle
    settles seven sever severance severe severs sewer shack shade shaikh shake shall sham shams
    sharp sharper shave shaver shavers shawl shear shears shed sheen sheets sheikh shell sheller
    shells shepherd sherbert sheriff sherry shield shields shin shine shire shirk shiver shivers
    shoals shock shoe shook shore shores short shorter shorts shoulders show showers showman
    shown shows shuck shutter shy sick sickles side sides sidle sierra silk sill sills silos
    silver silvers silversmith simmer simmering simmers simpler sin sincere sine sing singer
    sink sinner sire siren sires sister sites sitter sitters six sizer skates skip skipper sky
    slack slate slates slaughter slay sleeper sleet sleigh slice slick sly smack small smaller
    smalls smart smit smith smock smoke smolder smolders smothers snare snide snider snipe
    snipes snot snow snowball sober sobers solar sole soles solo son sonata song sons soon soot
    soprano sours south southern southward sovereign sow sox space spade span spangle spark
    sparkle sparks sparrow speak speaker speaks spear spearing spears speck specking speed
    speedy spell speller spells spice spies spikes spires spoon spore spotted spray spring
    springs sprinkle sprinkles sprout sprung spry square squire squires stabler stack stacks
    staff stage staggers stain stains stair stairs stake stall stalling stalls stammer stamp
    stamps standard staple stapler staples star stark starry start states steady steel steeples
    steer stem sterling stern sterner sterns steward stick sticker stickler stiff still stiller
    stills stinger stock stocking stocks stoke stokes stone stones stoney stonier stoop stoops
    stops storey stork storm storms stormy story stout stow straight strain strait strand
    strange straw stream street streets stretch stride striker strode strong struck strum stuck
    student study stump styles such sue sugar suite suits sullen sultan sum summer summers sun
    sung sunny sunshine super supple surface surgeon swab swagger swallow swan sweat sweet
    sweeten swift swilling swim swims swindle swindler swing swisher switcher sword swords tab
    tack tailor takes talent tall tally talon tames tan tang tank tanner tape tardy tarry tart
    tarter tawny tea teas teat tee teed teems teeter teeters tell teller tellers tempest temple
    temples tenant tennis test tester than thatch thatcher the then theta thistle thong thorn
    thorns thrash threat threats thresher thrift throne tiara tickle ties tiger tilde till
    timbers tinder ting tingle tinker tinkle tins tiny tipping toll tomb tome tomes ton tone
    tong tongue tonne too toots topic topping tore torn torrent torrents touch tours tow tower
    towers town towns toy trace trader trail trainer treasure treat trees tremble trial tribe
    trim trimmer trinity troll troop troupe trout true trump trunk trusty try tuck tuft tufts
    tune tuner turner tutor tweed twine twining twist union unique unknown unnamed upright urban
    us usher utter vain valentine valiant valid valley valves van vandal vane vanish veal veer
    veil velvet vent verge verges vessels vest vi via vial vicars vice victor victors victory
    view vigil vigilante vigor villa vine vines vineyard viola violet virgin virtue visa vise
    vital vowels wadding waddle wade wafer wage wager wagers wages wait waiters waits wake walk
    walker walks wall walling walls waltz wan wand wander wands wanner ward warden warm warmer
    warn warren warring warrior wash washer watchman water waters watt watts wax way ways wear
    wearing weary weathers weaver wedding wedge wee weed weekly weeks weight welcome weld welder
    well welling wellington wells welter were west western wetter wheat wheeling white whiten
    whites whittle wick wicker wicks widen wild wilder wilds will willing willow wills wilt
    wince winch wind windy wine wines wing wink winner winter winters wire wisdom wise wiser wit
    withers witting witty wolf won wonders woo wood wooden wooding woodland woods woody wool
    woolen word work worker workman works world worlds worm worth worthy wren wrench wright
    wrinkle yam yap yard yawn yearling yeast yell yellow yen yielding yoga yoke you young
    younger zeta
    """
)

"""Word lists that keep patterns from taking everyday words for people."""

from typing import Final


def words(listing: str) -> frozenset[str]:
    """The words of a listing, separated by blanks."""
    return frozenset(listing.split())


#: Words of things that software numbers (`credit_card_4421486`). A handle is made of names.
THINGS: Final = words(
    """
    account address agent api app arg array asset base batch bit block board book bucket build
    bus byte cache call card case cell certificate channel chat chunk class claude client code
    column command commit config context control coupon credit customer cvss data database
    date debit default demo device dim dir doc document draft driver edge entry env epoch
    error event example export feature field file flag flight flow fold form frame func
    function gift go gpt graph group head hex hidden host http https id image img import index
    info input instance int invoice iso issue item job js json key label latin layer level lib
    line link list llama log loop low machine main map mask max member memory message meta
    method min mode model module msg name net network new node note null num number object
    offset old option order out output package page param part patch path payment phase pid
    pixel plan point policy pool port post price process product profile project prompt
    property py python query queue random range rate read record ref region release reply
    report request reservation resource response result reward role room root round route row
    rule run sample schema scope score section seed segment sensor sequence server service
    session set shape shard size slot snapshot source span stage start state step store stream
    string sub support sym system tab table tag target task team temp template term test text
    thread ticket time timeout timer tmp token tool top topic total trace train transaction
    trial type unit update upload url user utf val value var vector version video view voucher
    web weight window windows worker write zone
    """
)

#: Capitalised words that stand where names stand and are none.
NOT_NAMES: Final = words(
    """
    a about account additional address again agent air airline airlines all also amount an and
    any april are as assistance at august aunt available baggage bash basic best birth book
    booking boss bot brother business but by cabin can cancel cancellation card certainly
    certificate change check class claude code codex confirm confirmation contact could credit
    customer dad date day days december departure details direct do doctor does dr economy email
    everyone false father february first flight flights folks for friday from full gift glad go
    gold great guest have he hello help her here hers hi him his how i if in information
    insurance is it its january json july june just lady last let looking lord madam manager may
    me membership miss mom monday more mother mr mrs ms my name need new no none not november
    number october of ok okay on one only option or order our outbound passenger passengers
    payment per person phone please policy price professor profile python regarding regular
    reservation return round saturday seats see september service she silver sir sister sorry
    sounds standard still sunday support sure team thank thanks that the their them then there
    these they this thursday time to today tomorrow total travel trip true tuesday type uncle
    unfortunately update upgrade us user valued wednesday welcome what when where which will
    wish with would yes yesterday you your yours
    """
)

#: Words that are names and much more often something else; alone they are not searched for.
AMBIGUOUS_NAMES: Final = words(
    """
    art bell bill black case chance chase court cross day dean drew early faith field fields
    frank gene grace grant green hall hill home hope house hunter jack joy judge king lane
    long love major mark max miles north page paris park pat price prince rich rose round sky
    south star stone street summer sunny sunset van victor von west white wood young
    """
)

#: Capitalised words that the entity model takes for people: products, cities of flights, headings.
NOT_PEOPLE: Final = words(
    """
    access action actions agent airport alert algorithm amex anthropic api apologies app apple april
    apt arrival assistant async atlanta austin aws azure bash beijing berlin boston browser bug
    build business c call certainly charlotte chat chicago chinese claude cli click cloud code codex
    columbus coming command commands config confirmation context convert create dallas data default
    delete denver departure description detroit docker document dollar economy edit editor english
    error est example exception execute expected fare fax feature file files flask flight format
    fort france french function gemini german germany git github glob google gpt grep guidelines
    handler hat houston html http import important index input insurance java javascript json kafka
    key kubernetes las latin linux list llama local london los mac mastercard mcp merge message
    method miami microsoft minneapolis mistral mode model module monday mozilla name newark node
    none note notebook null object openai option opus original orlando output overview params paris
    parse path payment perform philadelphia phoenix php plan platform playwright points policy
    portland postgres princess print process progress project prompt provided pull python qwen react
    read readme reason reasoning redis refund remaining reply repo request requirements response
    result return returns royal ruby run rust san save schema script search seattle section select
    send server shell silver skip slack sonnet source spanish sql start statement step string
    subject subtotal suite summary swift system tables task tasks tavily tel terminal test tests
    text thank todo token tokyo tool tools total transfer transport try twitter type types
    typescript ubuntu unix update usage use user username using value variable vegas version video
    view visa warning washington web webfetch websearch wifi windows wonderful workspace write xml
    yaml york youtube zurich
    """
)

#: Words that make a firm, a school or a place of what stands before them.
ORGANISATIONS: Final = words(
    """
    academy agency airlines airport arena associates association authority avenue bank bay beach
    boulevard bridge bureau canyon capital center centre chapel church cinema city clinic club
    coast college committee company concert corp corporation council country county court creek
    department district drive estate express festival forum foundation fund gallery games garden
    gardens gmbh group harbor harbour heights hill hills holdings hospital hotel inc
    incorporated industries institute international island islands journal kingdom lake lakes
    library limited llc lodge ltd magazine mall market media ministry mission monument motors
    mountain mountains museum national network news ocean office org orchestra palace park
    partners plaza press prize radio railway records republic resort restaurant river road
    school sea services society solutions square stadium state states station stores street
    studio studios systems technologies technology temple theatre times tower town trust union
    united university valley village west western zoo
    """
)

#: Towns and regions whose names people have too.
TOWNS: Final = words(
    """
    adelaide africa alabama alaska albany alberta america arizona arlington asia asuncion aurora
    bali barcelona bath belfast bern birmingham bologna bombay brazil bristol brooklyn brussels
    budapest buffalo cairo calgary california cambridge canada canterbury cape carolina
    casablanca chelsea cleveland cologne colorado concord cork cuba dakota delhi derby devon
    dover dresden dublin durham edinburgh egypt essex europe florence florida fort geneva genoa
    georgia glasgow greece hamburg hamilton hampshire hanover hartford havana hawaii helsinki
    idaho illinois india indiana iowa ireland israel istanbul jackson jakarta japan jersey
    jerusalem jordan kansas kent kentucky kiel krakow kyoto lagos lancaster las leeds leicester
    lima lincoln lisbon liverpool los louisiana lourdes lyon madison madrid maine malaga malta
    manchester manila manitoba maryland massachusetts melbourne memphis mexico michigan milan
    milano minnesota mississippi missouri modena montana montreal moscow mount munich naples
    nashville nebraska nevada norfolk nottingham oakland ohio oklahoma ontario oregon oslo
    ottawa oxford palermo parma pennsylvania persia perth pisa pittsburgh port porto prague
    preston princeton quebec quito raleigh reading richmond rio roma rome russia sacramento
    salem samara san santa santiago savannah scotland seoul seville shanghai sheffield siena
    singapore sofia somalia spain stafford stockholm sudan surrey sussex sydney syria taiwan
    tampa tennessee texas toledo toronto troy turin turkey utah valencia vancouver venice
    vermont verona victoria vienna virginia wales warsaw warwick wellington wichita windsor
    winnipeg wisconsin wyoming zagreb
    """
)

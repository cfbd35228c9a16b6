"""Word lists that keep patterns from taking everyday words for people."""

from typing import Final


def _words(listing: str) -> frozenset[str]:
    return frozenset(listing.split())


#: Words of things that software numbers (`credit_card_4421486`). A handle is made of names.
THINGS: Final = _words(
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
NOT_NAMES: Final = _words(
    """
    a about account additional address again agent air airline airlines all also amount an and
    any april are as assistance at august available baggage bash basic best birth book booking
    business but by cabin can cancel cancellation card certainly certificate change check
    class claude code codex confirm confirmation contact could credit customer date day days
    december departure details direct do does dr economy email everyone false february first
    flight flights folks for friday from full gift glad go gold great guest have hello help
    here hi how i if in information insurance is it january json july june just last let
    looking may me membership monday more mr mrs ms my name need new no none not november
    number october of ok okay on one only option or order our outbound passenger passengers
    payment per person phone please policy price profile python regarding regular reservation
    return round saturday seats see september service silver sorry sounds standard still
    sunday support sure team thank thanks that the their then there these they this thursday
    time to today tomorrow total travel trip true tuesday type unfortunately update upgrade us
    user valued wednesday welcome what when where which will wish with would yes yesterday you
    your
    """
)

#: Words that are names and much more often something else; alone they are not searched for.
AMBIGUOUS_NAMES: Final = _words(
    """
    art bell bill black case chance chase court cross day dean drew early faith field fields
    frank gene grace grant green hall hill home hope house hunter jack joy judge king lane
    long love major mark max miles north page paris park pat price prince rich rose round sky
    south star stone street summer sunny sunset van victor von west white wood young
    """
)

#: Capitalised words that the entity model takes for people: products, cities of flights, headings.
NOT_PEOPLE: Final = _words(
    """
    access action actions agent airport alert algorithm amex anthropic api apologies app apple
    april apt arrival assistant async atlanta austin aws azure bash beijing berlin boston
    browser bug build business c call certainly charlotte chat chicago chinese claude cli
    click cloud code codex columbus coming command commands config confirmation context create
    dallas data default delete denver departure description detroit docker document dollar
    economy edit editor english error est example execute expected fare fax feature file files
    flask flight format fort france french function gemini german germany git github glob
    google gpt grep guidelines hat houston html http import important index input insurance
    java javascript json kafka key kubernetes las latin linux list llama local london los
    mastercard mcp message method miami microsoft minneapolis mistral mode model module monday
    mozilla name newark node none note notebook null object openai option opus original
    orlando output overview params paris parse path payment perform philadelphia phoenix php
    plan platform playwright points policy portland postgres print process progress project
    prompt provided pull python qwen react read readme reason reasoning redis refund remaining
    reply repo request requirements response result return returns ruby run rust san save
    schema script search seattle section select send server shell silver skip slack sonnet
    source spanish sql start step string subject subtotal suite summary swift system tables
    task tasks tavily tel terminal test tests text thank todo token tokyo tool tools total
    transfer try twitter type types typescript ubuntu unix update usage use user username
    using value variable vegas version video view visa warning washington web webfetch
    websearch wifi windows wonderful workspace write xml yaml york youtube zurich
    """
)

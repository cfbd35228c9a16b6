"""Words around a capitalised word that say that it is somebody."""

import re
from typing import Final

_RELATIVES: Final = (
    "wife|husband|spouse|partner|fiancée?|girlfriend|boyfriend|son|daughter|kid|child|baby|mother"
    "|mom|mum|father|dad|parent|brother|sister|sibling|uncle|aunt|cousin|nephew|niece|grandson"
    "|granddaughter|grandmother|grandfather|grandma|grandpa|friend|neighbou?r|roommate|colleague"
    "|coworker|co-worker|boss|manager|assistant|secretary|client|customer|patient|doctor|nurse"
    "|teacher|professor|student|lawyer|attorney|landlord|tenant|guardian|beneficiary|nanny|driver"
    "|passenger|guest|employee|contact|stepson|stepdaughter|ex"
)
_BEFORE: Final = re.compile(
    r"(?:"
    rf"\b(?:my|his|her|our|their|your) (?:\w+ )?(?:{_RELATIVES}),?"
    r"|\b(?:by|with|met|meet|meeting|ask|asked|tell|told|call|called|calls|contact|contacted|phoned"
    r"|thank|thanked|invite|invited|marry|married|hired|fired|interviewed|named|starring|featuring"
    r"|features|says|said|wrote|replied|according to|on behalf of|in the name of|leave me"
    r"|calls? (?:me|him|her|us)"
    r"|change it to|corrected? (?:it )?to|under|early|ex-\w+|who (?:is|was)|said \w+ to"
    r"|(?:given|gave|sent|lent|owed) (?:it |this |that )?(?:to )?"
    r"|(?:shouted|yelled|looked|smiled) at"
    r"|(?:speak|spoke|talk|talked|listen|listened|wrote|lied|engaged|apologi[sz]ed?) (?:to|with)"
    r"|(?:follow|catch|meet|break|broke|split|sign) up with)"
    r"|\b(?:user|customer|name|agent|client|patient|passenger|guest|contact|from|to|cc|attn|author"
    r"|owner|sender|recipient|signed|employee|driver|student|teacher|manager|doctor|lawyer"
    r"|directed by|written by|interviewer|speaker|host) ?[:：]"
    r"|\bname\?|['’]s name|\bname is|\bregards,|\blove,|\bsincerely,|\bcheers,|\byours,"
    r"|\b(?:mr|mrs|ms|miss|dr|prof|sir|madam|officer|señor|señora|herr|frau|monsieur|madame)\.?"
    r") {1,4}$",
    re.IGNORECASE,
)
_AFTER: Final = re.compile(
    r"(?:['’]s (?:address|phone|e-?mail|account|card|house|birthday|passport|reservation|killers"
    rf"|concert|room|car|ticket|booking|seat|bag|name|{_RELATIVES})\b"
    r"|,? (?:says|said|asks|asked|told|replied|wrote|shouted|whispered|laughed|smiled|cried|nodded"
    r"|lives|lived|married|thinks|thought|believes|knows|knew|wants|wanted|loves|hates|hopes|feels"
    r"|felt|went home|flew|drove|moved to|grew up|studied at|graduated|began writing|sings|sang"
    r"|emailed|texted|phoned|called (?:me|us|him|her)|is from|is away|is married|was born"
    r"|was married|was hired|will be talking|has been married|had given|spent a (?:year|week|day)"
    r"|as (?:a |an |my |the )?(?:beneficiary|guardian|contact|passenger|guest|member|owner)"
    r"|is (?:a )?(?:very|really)|was (?:a )?(?:very|really)"
    r"|was a huge|is (?:my|our|his|her)|was (?:my|our|his|her)|and I)\b"
    r"|, (?:who|whose) |, (?:my|his|her|our) |, can I please)"
)
_REACH: Final = 48
#: Two that are named together are both people: "Torpy and Salinas".
_AND_BEFORE: Final = re.compile(r"\b(?P<word>[^\W\d_]{3,20})(?:,| and| &| or) (?:and )?$")
_AND_AFTER: Final = re.compile(r"(?:,| and| &| or) (?:and )?(?P<word>[A-Z][^\W\d_]{2,20})\b")


def is_spoken_of(line: str, start: int, end: int) -> bool:
    """Whether the words around line[start:end] speak of a person."""
    before, after = line[max(0, start - _REACH) : start], line[end : end + _REACH]
    return _BEFORE.search(before) is not None or _AFTER.match(after) is not None


def named_beside(line: str, start: int, end: int) -> list[str]:
    """Words that stand beside line[start:end] in a list, in lower case."""
    before = _AND_BEFORE.search(line[max(0, start - _REACH) : start])
    after = _AND_AFTER.match(line[end : end + _REACH])
    return [match["word"].lower() for match in (before, after) if match is not None]

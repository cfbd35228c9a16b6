"""Countries and states: what an address may end with."""

from typing import Final


def _names(listing: str) -> frozenset[str]:
    return frozenset(name.strip() for name in listing.replace("\n", " ").split(",") if name.strip())


#: In lower case, as they stand in English addresses, with some in their own language.
COUNTRIES: Final = _names(
    """
    afghanistan, albania, algeria, andorra, angola, argentina, armenia, australia, austria,
    azerbaijan, bahamas, bahrain, bangladesh, barbados, belarus, belgium, belgië, belgique, belize,
    benin, bhutan, bolivia, bosnia and herzegovina, botswana, brazil, brasil, brunei, bulgaria,
    burkina faso, burundi, cambodia, cameroon, canada, cape verde, chad, chile, china, colombia,
    comoros, congo, costa rica, croatia, hrvatska, cuba, cyprus, czech republic, czechia, česko,
    denmark, danmark, djibouti, dominica, dominican republic, ecuador, egypt, el salvador, england,
    eritrea, estonia, eesti, eswatini, ethiopia, faroe islands, fiji, finland, suomi, france, gabon,
    gambia, georgia, germany, deutschland, ghana, gibraltar, greece, greenland, greenlander,
    grenada, guatemala, guinea, guyana, haiti, honduras, hong kong, hungary, magyarország, iceland,
    ísland, india, indonesia, iran, iraq, ireland, israel, italy, italia, ivory coast, jamaica,
    japan, jordan, kazakhstan, kenya, kosovo, kuwait, kyrgyzstan, laos, latvia, lebanon, lesotho,
    liberia, libya, liechtenstein, lithuania, luxembourg, macau, macedonia, madagascar, malawi,
    malaysia, maldives, mali, malta, mauritania, mauritius, mexico, méxico, moldova, monaco,
    mongolia, montenegro, morocco, mozambique, myanmar, namibia, nauru, nepal, netherlands,
    nederland, new zealand, nicaragua, niger, nigeria, north korea, north macedonia,
    northern ireland, norway, norge, oman, österreich, pakistan, palau, palestine, panama,
    papua new guinea, paraguay, peru, perú, philippines, poland, polska, portugal, puerto rico,
    qatar, romania, românia, russia, rwanda, samoa, san marino, saudi arabia, schweiz, scotland,
    senegal, serbia, seychelles, sierra leone, singapore, slovakia, slovensko, slovenia, slovenija,
    somalia, south africa, south korea, south sudan, spain, españa, sri lanka, sudan, suriname,
    sweden, sverige, switzerland, suisse, svizzera, syria, taiwan, tajikistan, tanzania, thailand,
    togo, tonga, trinidad and tobago, tunisia, turkey, türkiye, turkmenistan, uganda, ukraine,
    united arab emirates, united kingdom, great britain, united states, united states of america,
    uruguay, usa, u.s.a, uk, uzbekistan, vanuatu, vatican city, venezuela, vietnam, wales, yemen,
    zambia, zimbabwe
    """
)

STATES: Final = frozenset(
    ("AL", "AK", "AZ", "AR", "CA", "CO", "CT", "DC", "DE", "FL", "GA", "HI", "IA", "ID", "IL", "IN",
     "KS", "KY", "LA", "MA", "MD", "ME", "MI", "MN", "MO", "MS", "MT", "NC", "ND", "NE", "NH", "NJ",
     "NM", "NV", "NY", "OH", "OK", "OR", "PA", "RI", "SC", "SD", "TN", "TX", "UT", "VA", "VT", "WA",
     "WI", "WV", "WY", "AB", "BC", "MB", "NB", "NL", "NS", "NT", "NU", "ON", "PE", "QC", "SK", "YT",
     "NSW", "QLD", "VIC", "TAS", "ACT", "AA", "AE", "AP")
)  # fmt: skip

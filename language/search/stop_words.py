"""Stop words by language: articles, pronouns, prepositions, conjunctions and auxiliary verbs.

Words are in lower case and with their accents, so `stop` follows `lowercase` and precedes `ascii`.
"""

from __future__ import annotations

from typing import Final

STOP_WORDS: Final[dict[str, frozenset[str]]] = {
    language: frozenset(words.split())
    for language, words in {
        "dutch": """
            aan al als bij dan dat de der deze die dit door dus een en er had heb heeft het hier hij
            hoe hun ik in is je kan maar me met mijn naar niet nog nu of om onder ons ook op over te
            tot uit u van voor want was wat we wel werd wie wij worden wordt ze zich zij zijn zo zou
        """,
        "english": """
            a about all also am an and any are as at be because been but by can could did do does
            for from had has have he her him his how i if in into is it its just me more my no nor
            not of on or our she should so some such than that the their them then there these they
            this those to too up us was we were what when where which who will with would you your
        """,
        "french": """
            à au aux avec c ce ces cet cette d dans de des du elle elles en est et été être eu il
            ils j je l la le les leur leurs lui m ma mais me même mes moi mon n ne nos notre nous on
            ont ou où par pas pour qu que qui s sa sans se ses si son sont sur t ta te tes toi ton
            tu un une vos votre vous y
        """,
        "german": """
            aber als am an auch auf aus bei bin bis da das dass dem den der des die dies diese
            dieser durch du ein eine einem einen einer eines er es für hat hatte ich ihr ihre im in
            ist ja kann mit nach nicht noch nur ob oder ohne sein seine sich sie sind so über um und
            uns unter vom von vor war was wenn wer wie wir wird zu zum zur
        """,
        "italian": """
            a ad ai al alla alle anche c che chi ci come con cui d da dal dalla degli dei del della
            delle di e ed era gli ha ho i il in io l la le lei lo loro lui ma mi mia mio ne nel
            nella noi non o per più quella quello questa questo se si sia sono su sua suo sul sulla
            tra tu un una uno voi
        """,
        "portuguese": """
            a ao aos as até com como da das de dela dele do dos e é ela elas ele eles em entre era
            essa esse esta este eu foi há isso isto já lhe mais mas me mesmo meu minha na não nas
            nem no nos nós o os ou para pela pelo por quando que quem são se sem ser seu sua também
            te tem um uma você
        """,
        "spanish": """
            a al como con cual cuando de del desde donde e el él ella ellas ellos en entre era es
            esa ese eso esta está este esto fue ha hasta hay la las le les lo los más me mi mis muy
            ni no nos o para pero por porque que qué quien se ser si sí sin sobre son su sus también
            te tu un una uno y ya yo
        """,
        "swedish": """
            alla att av blev bli blir de dem den denna det detta dig din du där då efter eller en er
            ett från för ha hade han har hon hur här i icke in inte jag ju kan man med men mig min
            mot ni nu när och om oss på sedan sig sin som så till under upp ut var vara vi vid vilka
            är över
        """,
    }.items()
}
"""Stop words by the stemmer's name of their language."""

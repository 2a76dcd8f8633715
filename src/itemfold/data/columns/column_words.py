"""Words in column names, and the roles that they indicate."""

from __future__ import annotations


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# fmt: off
KNOWN_NAMES = {
    "user": ("userid", "user", "uid", "customerid", "customer", "visitorid", "visitor", "memberid",
             "member", "accountid", "clientid", "reviewerid", "sessionid"),
    "item": ("itemid", "item", "iid", "movieid", "movie", "productid", "product", "trackid",
             "track", "songid", "song", "artistid", "artist", "bookid", "book", "isbn", "asin",
             "businessid", "newsid", "articleid", "article", "venueid", "venue", "placeid", "place",
             "poiid", "poi", "gameid", "game", "appid", "recipeid", "recipe", "videoid", "video",
             "sku", "stockcode"),
    "rating": ("rating", "ratings", "score", "stars", "overall"),
    "time": ("timestamp", "time", "ts", "datetime", "date", "unixreviewtime"),
    "title": ("title", "name", "movietitle"),
    "genre": ("genres", "genre", "category"),
    "weight": (),  # used only if requested
}
# fmt: on
"""Names of columns in order of preference, lower case and without `_`, `-`, space."""
WORDS = {  # a column is of a role if the last word of its name, apart from endings, is one of these
    "user": _words(
        "user customer client visitor member account reviewer buyer shopper reader listener viewer "
        "player person people subscriber profile household device cookie patron borrower consumer "
        "student learner traveller traveler guest benutzer nutzer kunde kunden mitglied gebruiker "
        "klant usuario cliente utilisateur utente"
    ),
    "item": _words(
        "item movie film product track song artist album book article news venue place poi game "
        "app recipe video anime manga show series episode podcast hotel restaurant business "
        "listing course job ad advert page post photo image beer wine joke material good goods "
        "merchant store shop location story document paper repo repository artikel produkt buch "
        "spiel lied rezept articulo producto pelicula libro cancion juego produit livre jeu "
        "chanson filme produto livro prodotto"
    ),
}
GROUPS = _words(  # what stands for a user where there is none
    "session order basket transaction invoice cart receipt trip playlist"
)
ID_ENDINGS = (
    "id",
    "ids",
    "key",
    "no",
    "nr",
    "num",
    "number",
    "code",
    "uri",
    "url",
    "hash",
    "sha1",
    "idx",
    "index",
    "uuid",
    "guid",
    "sku",
    "ean",
    "upc",
    "nummer",
    "numero",
    "codigo",
)
NAME_ENDINGS = ("name", "title", "label", "description")
FINAL_WORDS = {
    "rating": _words(
        "rating ratings score stars star grade vote liked reaction bewertung puntuacion "
        "calificacion valoracion avaliacao voto"
    ),
    "title": _words("title name titel titulo titre titolo nombre"),
    "genre": _words("genres genre category"),
}
TIME_WORDS = _words(
    "date dat datum time timestamp datetime ts at day moment zeit zeitstempel zeitpunkt fecha "
    "horodatage eventdate eventtime"
)
NOT_TIME = _words(  # watch_time and release_date are something else
    "release released birth birthday born publish published publication watch watched play "
    "played playing listen duration spent session year joined since expiry runtime reading "
    "zone delta"
)
WEIGHT_WORDS = _words(
    "hours hour plays play playcount count counts quantity qty listens listen listened clicks "
    "views visits purchases times weight minutes seconds playtime watchtime duration ratio "
    "frequency freq"
)
ACTIONS = _words(  # in names of columns of 0 and 1, and as kinds of events
    "view views viewed impression pv click clicks clicked like liked dislike love loved fav "
    "favorite favourite save saved share shared follow followed bookmark wishlist cart carts "
    "addtocart order orders ordered buy bought purchase purchased transaction convert "
    "converted conversion play played watch watched listen listened read skip skipped "
    "download downloaded install installed"
)
LIKED = _words("like liked love loved yes true up upvote \U0001f44d")
DISLIKED = _words("dislike disliked no false down downvote \U0001f44e")
OPINIONS = {**dict.fromkeys(LIKED, 1.0), **dict.fromkeys(DISLIKED, 0.0)}  # lower case

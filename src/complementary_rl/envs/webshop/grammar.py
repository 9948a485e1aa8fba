"""The words of generated catalogues: kinds of goods, what can be said of them, and the options they come in."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Wares:
    """What goods of one sort share: attributes said before the noun ("machine washable") or after "with" ("rubber sole"), uses."""

    before: tuple[str, ...]
    after: tuple[str, ...]
    uses: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of goods: where it is listed, the search term for it, what titles call it, dollars from and to."""

    path: str
    query: str
    nouns: tuple[str, ...]
    cheapest: int
    dearest: int


@dataclass(frozen=True, slots=True)
class Shelf:
    """Kinds of one sort that come with the same option axes (of `AXES`)."""

    wares: Wares
    axes: tuple[str, ...]
    kinds: tuple[Kind, ...]


def _words(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(","))


# axis → (the option's name, its values, the fewest and the most that a product offers)
AXES: dict[str, tuple[str, tuple[str, ...], int, int]] = {
    "color": (
        "color",
        _words("black, white, navy, burgundy, olive, grey, teal, mustard, coral, lavender, khaki, ivory, rose gold, light blue, plum"),
        3,
        6,
    ),
    "clothes size": ("size", _words("x-small, small, medium, large, x-large, xx-large, 3x-large"), 3, 5),
    "shoe size": ("size", _words("5, 5.5, 6, 6.5, 7, 7.5, 8, 8.5, 9, 9.5, 10, 11, 12"), 4, 6),
    "fit": ("fit type", _words("men, women, youth, big & tall"), 2, 3),
    "bed size": ("size", _words("twin, full, queen, king, california king"), 2, 4),
    "floor size": ("size", _words("2 ft x 3 ft, 3 ft x 5 ft, 4 ft x 6 ft, 5 ft x 8 ft, 8 ft x 10 ft"), 2, 4),
    "finish": ("finish", _words("walnut, oak, espresso, matte black, brushed nickel, bronze, antique white"), 2, 4),
    "scent": ("scent", _words("vanilla, cedar, citrus, unscented, jasmine, sea salt, almond, fig"), 2, 4),
    "shade": ("shade", _words("porcelain, ivory, honey, caramel, espresso, rose, cherry, nude"), 3, 5),
    "bottle": ("size", _words("1 fl oz, 2 fl oz, 4 fl oz, 8 fl oz, 12 fl oz, 16 fl oz"), 2, 3),
    "flavor": ("flavor name", _words("original, sea salt, dark chocolate, maple, chili lime, honey, cinnamon, berry"), 2, 5),
    "pack": ("pack", _words("1 count, 2 count, 3 count, 6 count, 12 count, 24 count"), 2, 4),
    "cable length": ("length", _words("3 feet, 6 feet, 10 feet, 15 feet, 25 feet, 50 feet"), 2, 4),
    "storage": ("capacity", _words("16 gb, 32 gb, 64 gb, 128 gb, 256 gb, 512 gb"), 2, 4),
    "phone": ("compatible model", _words("pixel nine, pixel ten, nova five, nova six, orion mini, orion max"), 2, 4),
}  # fmt: skip

_CLOTHES = Wares(
    _words(
        "machine washable, quick drying, long sleeve, slim fit, high waist, wrinkle free, moisture wicking, tummy control, wide leg"
    ),
    _words(
        "drawstring closure, elastic waist, button closure, side pockets, polyester spandex, organic cotton, contrast stitching"
    ),
    _words("daily wear, gym workout, office, travel, winter evenings, school"),
)
_SHOES = Wares(
    _words("non slip, water resistant, open toe, light weight, arch support, hand sewn, wide width, slip resistant"),
    _words("rubber sole, memory foam, ankle strap, leather lining, lace closure, zip closure, ethylene vinyl"),
    _words("daily wear, hiking, wedding parties, long shifts, summer beach, running"),
)
_HOME = Wares(
    _words("easy assemble, space saving, easy clean, eco friendly, heavy duty, fully assembled, height adjustable, white item"),
    _words("solid wood, steel frame, storage space, tempered glass, wood finish, contemporary style, mid century lines"),
    _words("living room, dining room, small apartments, home office, guest room, studio"),
)
_TEXTILES = Wares(
    _words("machine washable, super soft, double sided, fade resistant, spot clean, non slip, exquisite workmanship"),
    _words("printing technology, hidden zipper, polyester fabric, cotton fill, woven border, high density"),
    _words("living room, bedroom, nursery, patio, guest room, dorm"),
)
_LIGHTS = Wares(
    _words("energy saving, easy install, dimmable, mid century, height adjustable, wall mounted"),
    _words("glass shade, brushed finish, pull chain, led bulbs, remote switch, clear glass"),
    _words("living room, dining room, kitchen island, bedroom, entryway"),
)
_SKIN = Wares(
    _words("cruelty free, paraben free, fragrance free, dermatologist tested, oil free, travel size, alcohol free"),
    _words("natural ingredients, hyaluronic acid, tea tree, green tea, shea butter, vitamin complex"),
    _words("dry skin, sensitive skin, fine lines, dark circles, daily care"),
)
_HAIR = Wares(
    _words("sulfate free, paraben free, cruelty free, travel size, long lasting, color safe"),
    _words("argan oil, coconut oil, tea tree, natural ingredients, keratin complex, biotin"),
    _words("damaged hair, dry hair, hair growth, fine hair, daily care"),
)
_MAKEUP = Wares(
    _words("long lasting, cruelty free, fragrance free, highly pigmented, water proof, oil free"),
    _words("natural finish, vitamin complex, shea butter, sun protection, jojoba oil"),
    _words("sensitive skin, weddings, daily wear, photo shoots"),
)
_TOOLS = Wares(
    _words("easy use, easy carry, non toxic, high quality, bpa free, rust proof, double ended"),
    _words("stainless steel, storage case, soft bristles, precise tips, ergonomic handle, replaceable head"),
    _words("travel, salon, home use, sensitive gums, beginners"),
)
_FOOD = Wares(
    _words("gluten free, sugar free, non gmo, dairy free, low carb, keto friendly, ready eat, nut free, freeze dried, plant based"),
    _words("natural flavors, dietary fiber, protein serving, whole grains, resealable bag"),
    _words("lunch boxes, gift baskets, hiking trips, breakfast, movie nights"),
)
_DRINKS = Wares(
    _words("caffeine free, sugar free, usda organic, non gmo, gluten free, low calorie, individually wrapped"),
    _words("natural flavors, real fruit, vitamin c, recyclable tins, loose leaf, quality ingredients"),
    _words("iced drinks, mornings, office kitchens, gifts, after dinner"),
)
_AUDIO = Wares(
    _words("noise cancelling, hands free, water resistant, fast charging, high definition, light weight, long lasting"),
    _words("stereo sound, wireless charging, carrying case, touch controls, usb port, deep bass"),
    _words("home theater, travel, video calls, gaming, running, outdoor use"),
)
_PARTS = Wares(
    _words("high speed, plug play, heavy duty, shock proof, high definition, temperature proof, easy install"),
    _words("gold plated, aluminum alloy, braided sleeve, adapter included, error correction"),
    _words("home theater, gaming, cameras, offices, cars"),
)
_CASES = Wares(
    _words("heavy duty, shock proof, scratch resistant, easy install, ultra slim, hands free"),
    _words("tempered glass, wireless charging, card slots, kick stand, carbon fiber, raised edges"),
    _words("daily use, travel, outdoor use, work sites"),
)

SHELVES = (
    Shelf(_CLOTHES, ("color", "clothes size"), (
        Kind("Clothing › Women › Tops › Tunics", "women's tunics", ("Tunic Top", "Tunic Blouse"), 14, 48),
        Kind("Clothing › Women › Dresses › Casual", "women's dresses", ("Midi Dress", "Wrap Dress"), 22, 90),
        Kind("Clothing › Women › Active › Leggings", "women's leggings", ("Yoga Leggings", "Tights"), 12, 55),
        Kind("Clothing › Men › Shirts › Button-Down", "men's dress shirts", ("Dress Shirt", "Oxford Shirt"), 18, 70),
        Kind("Clothing › Men › Active › Shorts", "men's shorts", ("Running Shorts", "Cargo Shorts"), 12, 45),
        Kind("Clothing › Men › Outerwear › Jackets", "men's jackets", ("Bomber Jacket", "Fleece Jacket"), 30, 160),
    )),
    Shelf(_CLOTHES, ("color", "clothes size", "fit"), (
        Kind("Clothing › Novelty › Shirts › T-Shirts", "graphic t-shirts", ("Graphic T-Shirt", "Print Tee"), 9, 30),
    )),
    Shelf(_SHOES, ("color", "shoe size"), (
        Kind("Shoes › Women › Boots › Ankle", "women's ankle boots", ("Ankle Boots", "Chelsea Boots"), 28, 140),
        Kind("Shoes › Women › Sandals › Flat", "women's sandals", ("Sandals", "Slide Sandals"), 15, 70),
        Kind("Shoes › Men › Athletic › Running", "men's running shoes", ("Running Shoes", "Trainers"), 35, 150),
        Kind("Shoes › Men › Loafers › Casual", "men's loafers", ("Loafers", "Moccasins"), 25, 110),
    )),
    Shelf(_HOME, ("finish",), (
        Kind("Home › Furniture › Living Room › Console Tables", "console tables", ("Console Table", "Sofa Table"), 70, 480),
        Kind("Home › Furniture › Living Room › Bookcases", "bookcases", ("Bookcase", "Shelf Unit"), 50, 320),
        Kind("Home › Furniture › Office › Desks", "computer desks", ("Computer Desk", "Writing Desk"), 60, 390),
    )),
    Shelf(_HOME, ("finish", "pack"), (
        Kind("Home › Furniture › Bedroom › Nightstands", "nightstands", ("Nightstand", "Bedside Table"), 40, 210),
    )),
    Shelf(_HOME, ("color", "pack"), (
        Kind("Home › Furniture › Dining Room › Stools", "bar stools", ("Bar Stool", "Counter Stool"), 45, 260),
    )),
    Shelf(_TEXTILES, ("color", "bed size"), (
        Kind("Home › Bedding › Covers › Duvet Covers", "duvet covers", ("Duvet Cover", "Bedding Set"), 25, 120),
        Kind("Home › Bedding › Blankets › Throws", "throw blankets", ("Throw Blanket", "Fleece Blanket"), 15, 80),
    )),
    Shelf(_TEXTILES, ("color", "pack"), (
        Kind("Home › Decor › Cushions › Pillow Covers", "pillow covers", ("Pillow Cover", "Cushion Case"), 8, 40),
    )),
    Shelf(_TEXTILES, ("color", "floor size"), (
        Kind("Home › Decor › Rugs › Area Rugs", "area rugs", ("Area Rug", "Runner Rug"), 20, 220),
    )),
    Shelf(_LIGHTS, ("finish", "pack"), (
        Kind("Home › Lighting › Ceiling › Pendants", "pendant lights", ("Pendant Light", "Hanging Lamp"), 28, 240),
        Kind("Home › Lighting › Wall › Sconces", "wall sconces", ("Wall Sconce", "Vanity Light"), 22, 160),
    )),
    Shelf(_SKIN, ("scent", "bottle"), (
        Kind("Beauty › Skin Care › Face › Moisturizers", "face moisturizers", ("Face Moisturizer", "Day Cream"), 9, 64),
        Kind("Beauty › Skin Care › Body › Lotions", "body lotions", ("Body Lotion", "Body Butter"), 7, 42),
    )),
    Shelf(_HAIR, ("scent", "bottle"), (
        Kind("Beauty › Hair Care › Shampoo › Daily", "shampoos", ("Shampoo", "Cleansing Shampoo"), 7, 38),
        Kind("Beauty › Hair Care › Masks › Repair", "hair masks", ("Hair Mask", "Repair Treatment"), 8, 45),
    )),
    Shelf(_MAKEUP, ("shade",), (
        Kind("Beauty › Makeup › Face › Foundation", "foundations", ("Liquid Foundation", "Cushion Foundation"), 8, 52),
    )),
    Shelf(_MAKEUP, ("shade", "pack"), (
        Kind("Beauty › Makeup › Lips › Lipstick", "lipsticks", ("Matte Lipstick", "Lip Tint"), 6, 34),
    )),
    Shelf(_TOOLS, ("color", "pack"), (
        Kind("Beauty › Oral Care › Brushes › Manual", "toothbrushes", ("Toothbrush", "Travel Toothbrush"), 4, 26),
        Kind("Beauty › Tools › Tweezers › Eyebrow", "eyebrow tweezers", ("Eyebrow Tweezers", "Slant Tweezers"), 5, 28),
    )),
    Shelf(_FOOD, ("flavor", "pack"), (
        Kind("Grocery › Snacks › Bars › Granola", "granola bars", ("Granola Bars", "Oat Bars"), 6, 48),
        Kind("Grocery › Snacks › Chips › Vegetable", "vegetable chips", ("Veggie Chips", "Lentil Crisps"), 5, 40),
        Kind("Grocery › Snacks › Nuts › Mixes", "trail mixes", ("Trail Mix", "Nut Mix"), 7, 55),
        Kind("Grocery › Breakfast › Cereal › Cold", "cereals", ("Breakfast Cereal", "Muesli"), 5, 42),
    )),
    Shelf(_DRINKS, ("flavor", "pack"), (
        Kind("Grocery › Beverages › Tea › Herbal", "herbal teas", ("Herbal Tea", "Tea Bags"), 6, 44),
        Kind("Grocery › Beverages › Coffee › Ground", "ground coffees", ("Ground Coffee", "Espresso Blend"), 8, 60),
    )),
    Shelf(_AUDIO, ("color",), (
        Kind("Electronics › Audio › Headphones › Over-Ear", "headphones", ("Headphones", "Wireless Headset"), 22, 260),
        Kind("Electronics › Audio › Speakers › Portable", "bluetooth speakers", ("Bluetooth Speaker", "Portable Speaker"), 18, 190),
    )),
    Shelf(_PARTS, ("cable length", "pack"), (
        Kind("Electronics › Cables › Video › HDMI", "hdmi cables", ("HDMI Cable", "Video Cord"), 7, 48),
    )),
    Shelf(_PARTS, ("storage", "pack"), (
        Kind("Electronics › Storage › Memory Cards › Micro", "memory cards", ("Memory Card", "Micro Card"), 9, 110),
    )),
    Shelf(_CASES, ("color", "phone"), (
        Kind("Cell Phones › Accessories › Cases › Basic", "phone cases", ("Phone Case", "Protective Cover"), 8, 45),
        Kind("Cell Phones › Accessories › Mounts › Car", "phone holders", ("Phone Holder", "Car Mount"), 9, 40),
    )),
)  # fmt: skip

# Brands are made of two syllables each: 400 names.
BRAND_BEGINNINGS = _words("al, bel, cor, dan, el, fen, gar, hol, jas, kel, lum, mar, nor, or, pel, quin, ros, sel, tor, ver")
BRAND_ENDINGS = _words(
    "ano, bury, con, dale, eva, field, gio, hart, ique, ka, lio, mora, nix, ora, pont, ric, sta, tine, vara, wick"
)

OPENERS = ("Find me", "I am looking for", "I need", "I want to buy", "Show me", "Please get me")
PRAISE = ("Just as described", "Would buy again", "Does what it should", "A good gift", "Better than the last one")
COMPLAINTS = ("Not for everyone", "Smaller than I thought", "Took a while to arrive", "The color is off")

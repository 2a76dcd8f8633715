// Drawings for covers without an image: one motif per kind of genre, varied by the item. Each is a list of
// [path, opacity] in a box of 60 × 90.

const disc = (x, y, r) => `M${x - r} ${y}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0z`;
const ring = (x, y, r, width) => disc(x, y, r) + disc(x, y, r - width); // filled by the even-odd rule
const shape = (...points) => `M${points.map((point) => point.join(" ")).join("L")}z`;
const bar = (x, y, width, height) => shape([x, y], [x + width, y], [x + width, y + height], [x, y + height]);
const times = (number, make) => Array.from({length: number}, (_, at) => make(at));

// `random` returns numbers from 0 to 1.
const MOTIFS = {
  sunset: (random) => [
    [disc(18 + 24 * random(), 34, 13), 0.9],
    ...times(5, (at) => [bar(6 + 10 * random(), 52 + 6 * at, 24 + 20 * random(), 2), 0.5 - 0.08 * at]),
  ],
  mountains: (random) => [
    [disc(12 + 36 * random(), 18, 7), 0.9],
    ...[0.28, 0.4, 0.55].map((opacity, at) => {
      const [x, y] = [10 + 40 * random(), 26 + 12 * at];
      return [shape([-30, 90], [x, y], [x + 9, y + 11], [x + 18, y + 5], [90, 90]), opacity];
    }),
  ],
  speed: (random) => times(6, (at) => {
    const [x, width] = [-14 + 13 * at + 6 * random(), 2 + 6 * random()];
    return [shape([x + 34, 0], [x + 34 + width, 0], [x + width, 90], [x, 90]), 0.25 + 0.5 * random()];
  }),
  bubbles: (random) => times(9, () => [disc(60 * random(), 66 * random(), 3 + 9 * random()), 0.2 + 0.5 * random()]),
  arcs: (random) => {
    const x = 60 * Math.round(random());
    return times(4, (at) => [ring(x, 60, 54 - 13 * at, 7), 0.75 - 0.13 * at]);
  },
  blinds: (random) => [
    [disc(16 + 28 * random(), 30, 12), 0.85],
    ...times(9, (at) => [bar(0, 4 + 7 * at, 60, 3), 0.3]),
  ],
  target: (random) => {
    const [x, y] = [18 + 24 * random(), 24 + 14 * random()];
    return [[disc(x, y, 3), 0.9], ...times(5, (at) => [ring(x, y, 9 + 8 * at, 2), 0.7 - 0.12 * at])];
  },
  lens: (random) => {
    const [x, y] = [22 + 16 * random(), 30 + 6 * random()];
    return [[ring(x, y, 20, 4), 0.8], [disc(x, y, 11), 0.45], [disc(x - 4, y - 4, 3), 0.9]];
  },
  night: (random) => {
    const [x, y] = [18 + 20 * random(), 30];
    return [
      [`M${x} ${y - 14}a14 14 0 1 0 14 20a12 12 0 0 1 -14 -20z`, 0.95],
      ...times(11, () => [disc(60 * random(), 60 * random(), 0.5 + random()), 0.8]),
    ];
  },
  forest: (random) => [
    [disc(15 + 30 * random(), 22, 10), 0.8],
    ...times(7, (at) => {
      const [x, top] = [10 * at - 6 + 5 * random(), 22 + 26 * random()];
      return [shape([x, 90], [x + 7, top], [x + 14, 90]), 0.45];
    }),
  ],
  music: (random) => times(9, (at) => {
    const height = 8 + 38 * random();
    return [bar(5 + 5.8 * at, 36 - height / 2, 3.4, height), 0.45 + 0.45 * random()];
  }),
  pair: (random) => {
    const y = 28 + 8 * random();
    return [[disc(23, y, 15), 0.6], [disc(37, y + 4, 15), 0.6]];
  },
  planet: (random) => {
    const [x, y] = [20 + 20 * random(), 26 + 10 * random()];
    const orbit = (rx, ry) => `M${x - rx} ${y + 7}A${rx} ${ry} -18 1 0 ${x + rx} ${y - 7}A${rx} ${ry} -18 1 0 ${x - rx} ${y + 7}z`;
    return [[disc(x, y, 12), 0.9], [orbit(23, 6) + orbit(21, 4), 0.7],
      ...times(9, () => [disc(60 * random(), 64 * random(), 0.5 + random()), 0.8])];
  },
  rays: (random) => {
    const [x, y, turn] = [20 + 20 * random(), 62, random()];
    const at = (angle) => [Math.round(x + 90 * Math.cos(angle)), Math.round(y - 90 * Math.sin(angle))];
    return times(8, (ray) => [shape([x, y], at((ray + turn) * 0.42), at((ray + turn) * 0.42 + 0.19)), 0.4]);
  },
};
const KINDS = [ // the most telling first
  [/sci-?fi|science|space/, "planet"], [/horror/, "forest"], [/fantas|fairy|magic/, "night"], [/music|dance|opera/, "music"],
  [/romance|love|wedding/, "pair"], [/animat|child|kid|family/, "bubbles"], [/advent|western|travel|nature|outdoor/, "mountains"],
  [/war|histor|polit/, "rays"], [/document|news|biograph/, "lens"], [/crime|noir/, "blinds"], [/thrill|myster/, "target"],
  [/action|sport|racing/, "speed"], [/comedy|humou?r|satire/, "arcs"], [/drama/, "sunset"],
];
const TELLING = 4; // the first of them alone choose the motif
const NAMES = Object.keys(MOTIFS);

export function hash(text) {
  let found = 7;
  for (const letter of text) found = (found * 31 + letter.codePointAt(0)) % 1_000_003;
  return found;
}

// Numbers from 0 to 1 that are always the same for an item.
function randomFor(id) {
  let seed = hash(id) + 1;
  const random = () => {
    seed = seed * 48271 % 2_147_483_647;
    return seed / 2_147_483_647;
  };
  random(); // the first follows the seed
  return random;
}

// The motif of an item: of the most telling of its genres, or of one of the two if none of them tells much. An item
// without a known genre has that of its first genre, or of its id.
export function motifName(genres, id) {
  const text = genres.join(" ").toLowerCase();
  const fitting = KINDS.filter(([kind]) => kind.test(text)).slice(0, 2);
  if (!fitting.length) return NAMES[hash(genres[0] ?? id) % NAMES.length];
  const isTelling = KINDS.indexOf(fitting[0]) < TELLING;
  return fitting[isTelling ? 0 : Math.floor(fitting.length * randomFor(id)())][1];
}

export function motif(genres, id) {
  const made = svg("svg", {viewBox: "0 0 60 90", preserveAspectRatio: "xMidYMid slice", "aria-hidden": "true"});
  for (const [path, opacity] of MOTIFS[motifName(genres, id)](randomFor(id))) {
    made.append(svg("path", {d: path, "fill-opacity": opacity.toFixed(2), "fill-rule": "evenodd"}));
  }
  return made;
}

function svg(tag, properties) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [property, value] of Object.entries(properties)) made.setAttribute(property, value);
  return made;
}

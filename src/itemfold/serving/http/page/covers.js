// Covers: the image of an item, or one made from its title, year and genres.

import {element} from "./elements.js";
import {hash, motif} from "./motifs.js";
import {genresOf, named, nameAndYear} from "./titles.js";

let imageHosts = []; // images are shown only from hosts that the service allows
let genres = [];

export function setUpCovers(about) {
  imageHosts = about.image_hosts;
  genres = about.genres;
}

const isAllowed = (image) => Boolean(image) && URL.canParse(image) && imageHosts.includes(new URL(image).origin);

// A hue for a genre or another text. Steps of the golden angle keep neighbours apart.
function hue(text) {
  const place = genres.indexOf(text);
  return Math.round(200 + (place < 0 ? hash(text) : place) * 137.508) % 360;
}

// A drawing in the colours of an item's genres.
function drawn(entry, className, ...text) {
  const [first, second = first] = genresOf(entry);
  const made = element("span", {className}, motif(genresOf(entry), String(entry.item)), ...text);
  made.style.setProperty("--hue", hue(first ?? named(entry)));
  made.style.setProperty("--hue-2", hue(second ?? `${named(entry)}.`));
  return made;
}

function poster(entry) {
  const {name: whole, year} = nameAndYear(entry);
  const name = whole.replace(/(?<=.) \([^()]*\)$/, ""); // without another title
  const made = drawn(entry, "cover",
    element("span", {className: "name"}, name), element("span", {className: "year"}, year));
  const longest = Math.max(...name.split(/[\s-]/).map((word) => word.length));
  made.style.setProperty("--letters", Math.max(longest, name.length / 4)); // so that the longest word fits, and the name
  return made;
}

// The cover of a tile, which names the item.
export function cover(entry) {
  if (!isAllowed(entry.image)) return poster(entry);
  const image = element("img", {className: "picture", alt: "", loading: "lazy", src: entry.image});
  const made = element("span", {className: "framed"}, image, element("span", {className: "name"}, named(entry)));
  image.onerror = () => made.replaceWith(poster(entry));
  return made;
}

// The small cover beside a title: the image, or the same drawing as on the tile.
export function thumbnail(entry) {
  const small = drawn(entry, "cover thumb", ...(entry.title ? [] : [String(entry.item).slice(-2)]));
  small.ariaHidden = "true";
  if (!isAllowed(entry.image)) return small;
  const image = element("img", {className: "picture thumb", alt: "", loading: "lazy", src: entry.image});
  image.onerror = () => image.replaceWith(small);
  return image;
}

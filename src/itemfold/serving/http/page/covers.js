// Covers: the image of an item, or one made from its title, year and genres.

import {element} from "./elements.js";
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
  let place = genres.indexOf(text);
  if (place < 0) for (const letter of text) place = (place * 31 + letter.codePointAt(0)) % 1_000_003;
  return Math.round(200 + place * 137.508) % 360;
}

function drawn(entry) {
  const {name, year} = nameAndYear(entry);
  const [first, second = first] = genresOf(entry);
  const made = element("span", {className: "cover"},
    element("span", {className: "name"}, name), element("span", {className: "year"}, year));
  const longest = Math.max(...name.split(/[\s-]/).map((word) => word.length));
  for (const [property, value] of [
    ["--hue", hue(first ?? named(entry))], ["--hue-2", hue(second ?? `${named(entry)}.`)],
    ["--letters", Math.max(longest, name.length / 4)], // so that the longest word fits, and the name
  ]) made.style.setProperty(property, value);
  return made;
}

// The cover of a tile, which names the item.
export function cover(entry) {
  if (!isAllowed(entry.image)) return drawn(entry);
  const image = element("img", {className: "picture", alt: "", loading: "lazy", src: entry.image});
  const made = element("span", {className: "framed"}, image, element("span", {className: "name"}, named(entry)));
  image.onerror = () => made.replaceWith(drawn(entry));
  return made;
}

// The small cover beside a title: the image, or a letter of the title or the end of the id on the item's colour.
export function thumbnail(entry) {
  const letter = drawn(entry);
  letter.className = "cover thumb";
  letter.ariaHidden = "true";
  letter.replaceChildren(entry.title ? initial(entry) : String(entry.item).slice(-2));
  if (!isAllowed(entry.image)) return letter;
  const image = element("img", {className: "picture thumb", alt: "", loading: "lazy", src: entry.image});
  image.onerror = () => image.replaceWith(letter);
  return image;
}

const initial = (entry) => [...named(entry).replace(/^(The|An?) (?=\S)/, "")][0].toUpperCase();

// Titles as people write them.

const ARTICLES = "The|An?|L[aeo]s?|L'|Les|Une?|Una|El|Il|Gli|De[rnt]|Das|Die|Het|Os?|As";
const INVERTED = new RegExp(`(^|\\()([^()]+), (${ARTICLES})(?=\\s*(?:[()]|$))`, "g");

// "Matrix, The (1999)" → "The Matrix (1999)", also within parentheses.
export const readable = (title) =>
  title.replace(INVERTED, (_, before, rest, article) => `${before}${article}${article.endsWith("'") ? "" : " "}${rest}`);

export const named = (entry) => (entry.title ? readable(entry.title) : String(entry.item));

// The name and the year of "The Matrix (1999)"; the year is "" if there is none.
export function nameAndYear(entry) {
  const [, name, year] = /^(.+?)\s*\((\d{4})\)$/.exec(named(entry)) ?? [null, named(entry), ""];
  return {name, year};
}

export const shortName = (entry) => nameAndYear(entry).name;
export const genresOf = (entry) => (entry.genres || "").split("|").filter(Boolean);

export function joined(names) {
  return names.length < 2 ? names.join("") : `${names.slice(0, -1).join(", ")} and ${names.at(-1)}`;
}

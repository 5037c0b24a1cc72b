// Converts offsets in texts. The services count Unicode code points, and JavaScript counts UTF-16
// units. A code point above U+FFFF (an emoji, a rare Chinese character) has two units.

/**
 * Returns a function that converts an offset in `text` from code points to UTF-16 units. Offsets
 * outside the text become the start or the end of the text.
 */
export function utf16Offsets(text) {
  const wide = widePlaces(text);
  const units = (place) => place + countBelow(wide, place);
  return (place) => Math.min(units(Math.max(place, 0)), text.length);
}

/** Returns the offsets, in code points, of the code points that have two UTF-16 units. */
function widePlaces(text) {
  const places = [];
  let place = 0;
  for (let unit = 0; unit < text.length; unit += 1, place += 1) {
    if (text.codePointAt(unit) > 0xffff) {
      places.push(place);
      unit += 1;
    }
  }
  return places;
}

/** Returns how many of the sorted numbers are below `limit`, by binary search. */
function countBelow(sorted, limit) {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] < limit) low = middle + 1;
    else high = middle;
  }
  return low;
}

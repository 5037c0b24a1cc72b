// Formats numbers for people.

/** Converts a whole number to a Number; ProtoJSON writes a 64-bit number as a text. */
export function whole(value) {
  return Number(value ?? 0);
}

/** Returns a count with thousands separators. */
export function count(value) {
  return new Intl.NumberFormat("en").format(whole(value));
}

/** Returns a count with thousands separators, or a dash for 0. */
export function countOrDash(value) {
  return whole(value) ? count(value) : "–";
}

/** Formats a size in bytes with a binary unit, for example `1.5 MiB`. */
export function size(value) {
  let rest = whole(value);
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (rest < 1024)
      return `${rest < 10 && unit !== "B" ? rest.toFixed(1) : Math.round(rest)} ${unit}`;
    rest /= 1024;
  }
  return `${rest.toFixed(1)} TiB`;
}

/** Formats a duration in microseconds: in milliseconds, or in seconds if it is 10 s or longer. */
export function duration(microseconds) {
  const ms = whole(microseconds) / 1000;
  if (ms >= 10_000) return `${(ms / 1000).toFixed(1)} s`;
  return `${ms < 10 ? ms.toFixed(2) : ms < 100 ? ms.toFixed(1) : Math.round(ms)} ms`;
}

/** Returns a score with three decimal places. */
export function score(value) {
  return value.toFixed(3);
}

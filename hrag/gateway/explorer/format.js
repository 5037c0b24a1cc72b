// Formats numbers for people.

/** Returns a whole number as a Number. ProtoJSON writes a number of 64 bits as a text. */
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

/** Returns a size in bytes with a binary unit. */
export function size(value) {
  let rest = whole(value);
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (rest < 1024)
      return `${rest < 10 && unit !== "B" ? rest.toFixed(1) : Math.round(rest)} ${unit}`;
    rest /= 1024;
  }
  return `${rest.toFixed(1)} TiB`;
}

/** Returns a duration in microseconds as a text in milliseconds, or in seconds from 10 s on. */
export function duration(microseconds) {
  const ms = whole(microseconds) / 1000;
  if (ms >= 10_000) return `${(ms / 1000).toFixed(1)} s`;
  return `${ms < 10 ? ms.toFixed(2) : ms < 100 ? ms.toFixed(1) : Math.round(ms)} ms`;
}

/** Returns a score with three decimal places. */
export function score(value) {
  return value.toFixed(3);
}

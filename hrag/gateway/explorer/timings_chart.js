// Shows the timings of a search as one bar, with one segment for each stage.

import { h, newId } from "./dom.js";
import { duration, whole } from "./format.js";

const STAGES = ["embed", "filter", "search", "climb", "fetch", "rerank"];

/** A bar with its legend. `setScale` makes the bars of several searches comparable. */
export class TimingsChart {
  constructor(timings, roundTripMs) {
    this.totalUs = whole(timings.totalUs);
    const times = STAGES.map((stage) => [stage, whole(timings[`${stage}Us`])]);
    const other = Math.max(this.totalUs - times.reduce((sum, [, us]) => sum + us, 0), 0);
    this.#stages = [...times, ["other", other]].filter(([, us]) => us > 0);
    this.#bar = h(
      "div",
      { class: "timing-bar", "aria-hidden": "true" },
      this.#stages.map(([stage]) => h("span", { class: `stage-${stage}` })),
    );
    const heading = newId("timings");
    this.element = h(
      "div",
      { class: "timings" },
      h("p", {
        class: "timing-total",
        id: heading,
        t: [
          "timing.total",
          { total: duration(this.totalUs), trip: `${Math.round(roundTripMs)} ms` },
        ],
      }),
      this.#bar,
      h(
        "dl",
        { class: "timing-legend", "aria-labelledby": heading },
        this.#stages.map(legendEntry),
      ),
    );
    this.setScale(this.totalUs);
  }

  #stages;
  #bar;

  /** Sets the duration, in microseconds, that the whole width of the bar represents. */
  setScale(wholeUs) {
    this.#stages.forEach(([, us], index) => {
      this.#bar.children[index].style.width = `${(100 * us) / Math.max(wholeUs, 1)}%`;
    });
  }
}

function legendEntry([stage, us]) {
  return h(
    "div",
    {},
    h("dt", {}, h("span", { class: `swatch stage-${stage}` }), h("span", { t: `timing.${stage}` })),
    h("dd", {}, duration(us)),
  );
}

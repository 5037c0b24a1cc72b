// The place where files are dropped or chosen.

import { button, h } from "./dom.js";

/**
 * Returns an element to which files can be dropped, with a button that chooses files and `content`.
 * `keys` are the dictionary's keys of the title, the text and the button. `onFiles` is called with
 * an array of files; `isEnabled` says if files may be dropped. `control` gets the button, and
 * returns it.
 */
export function dropZone(keys, onFiles, options = {}) {
  const { multiple = false, accept, isEnabled = () => true, control = (each) => each } = options;
  const input = h("input", {
    type: "file",
    multiple,
    accept,
    class: "unseen",
    tabindex: "-1",
    "aria-hidden": "true",
    onchange: () => {
      onFiles([...input.files]);
      input.value = "";
    },
  });
  const over = (event, isOver) => {
    event.preventDefault();
    zone.classList.toggle("is-over", isOver && isEnabled());
  };
  const zone = h(
    "div",
    {
      class: "drop-zone",
      ondragover: (event) => over(event, true),
      ondragleave: (event) => over(event, false),
      ondrop: (event) => {
        over(event, false);
        const files = [...event.dataTransfer.files];
        if (files.length && isEnabled()) onFiles(files);
      },
    },
    h("p", { class: "empty-title", t: keys.title }),
    h("p", { t: keys.text }),
    control(button(keys.choose, () => input.click(), { class: "main-button" })),
    options.content,
    input,
  );
  return zone;
}

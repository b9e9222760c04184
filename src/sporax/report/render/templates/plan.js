// Search dims what does not match in the picture and hides it in the table; zoom scales the picture; heads of tables sort.
const search = document.querySelector(".tools input");
const found = document.querySelector(".tools output");
const boxes = [...document.querySelectorAll(".graph svg g")].filter((group) => group.querySelector("rect"));
const rows = [...document.querySelectorAll(".listed tr")].filter((row) => row.querySelector("td"));

search.addEventListener("input", () => {
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  const matches = (element) => words.every((word) => element.textContent.toLowerCase().includes(word));
  const hits = boxes.filter(matches);
  for (const box of boxes) box.classList.toggle("faint", words.length > 0 && !hits.includes(box));
  for (const row of rows) row.hidden = !matches(row);
  found.textContent = words.length ? `${hits.length} of ${boxes.length}` : "";
  if (words.length && hits.length) hits[0].scrollIntoView({ block: "nearest", inline: "nearest" });
});

const picture = document.querySelector(".graph svg");
const frame = picture.parentElement;
const width = picture.viewBox.baseVal.width;
const height = picture.viewBox.baseVal.height;
let scale = 1;

function zoom(to, x = frame.clientWidth / 2, y = frame.clientHeight / 2) {
  const before = scale;
  scale = Math.min(8, Math.max(0.05, to));
  picture.setAttribute("width", width * scale);
  picture.setAttribute("height", height * scale);
  // What is under the pointer stays there.
  frame.scrollLeft = ((frame.scrollLeft + x) * scale) / before - x;
  frame.scrollTop = ((frame.scrollTop + y) * scale) / before - y;
}

for (const button of document.querySelectorAll(".tools button")) {
  const factor = Number(button.dataset.zoom);
  button.addEventListener("click", () => zoom(factor ? scale * factor : frame.clientWidth / width));
}
frame.addEventListener(
  "wheel",
  (event) => {
    if (!event.ctrlKey) return;
    event.preventDefault();
    const corner = frame.getBoundingClientRect();
    zoom(scale * Math.exp(-event.deltaY / 300), event.clientX - corner.left, event.clientY - corner.top);
  },
  { passive: false },
);

const units = { s: 1, ms: 1e-3, "µs": 1e-6, B: 1, kB: 1e3, MB: 1e6, GB: 1e9, TB: 1e12 };
const quantity = (row, column) => {
  const [number, unit] = row.cells[column].textContent.split(/\s/);
  return parseFloat(number) * (units[unit] ?? 1);
};
for (const head of document.querySelectorAll("th")) {
  const column = head.cellIndex;
  head.addEventListener("click", () => {
    const list = head.closest("tr").parentElement;
    const sign = (head.dataset.sign = head.dataset.sign === "-1" ? 1 : -1);
    const sorted = [...list.rows].slice(1).sort((a, b) =>
      head.classList.contains("number")
        ? sign * (quantity(a, column) - quantity(b, column))
        : -sign * a.cells[column].textContent.localeCompare(b.cells[column].textContent, undefined, { numeric: true }),
    );
    list.append(...sorted);
  });
}

// Each side shows the page of the plan that its list names.
const pages = [...document.querySelectorAll("textarea")].map((entry) => entry.value);
document.querySelectorAll(".sides > div").forEach((side, number) => {
  const choice = side.querySelector("select");
  const show = () => (side.querySelector("iframe").srcdoc = pages[choice.value]);
  choice.value = Math.min(number, pages.length - 1);
  choice.addEventListener("change", show);
  show();
});

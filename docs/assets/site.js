// The theme puts a bar of buttons over each block of code: the bars get names of their own, and what may scroll
// can be reached by keyboard.
function reachable() {
  document.querySelectorAll(".md-code__nav").forEach((bar, place) => bar.setAttribute("aria-label", `Code ${place + 1}`));
  document.querySelectorAll(".formula, .md-typeset__scrollwrap").forEach((box) => { if (box.scrollWidth > box.clientWidth) box.tabIndex = 0; });
  document.querySelectorAll("pre > code").forEach((code) => { if (code.tabIndex !== 0) code.tabIndex = 0; });
}
new MutationObserver(reachable).observe(document.body, { childList: true, subtree: true });
addEventListener("load", () => setTimeout(reachable, 500));

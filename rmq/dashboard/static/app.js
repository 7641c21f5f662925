// Comfort only: every page works without it. Reloads what changes by itself, ticks all, asks before what cannot be undone.
"use strict";

document.querySelector("header [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" }); // narrow: the menu scrolls

const seconds = Number(document.body.dataset.refresh || 0);

async function refresh() {
  const main = document.getElementById("main");
  const busy = main.contains(document.activeElement) && document.activeElement !== main;
  if (document.hidden || busy || main.querySelector("details[open]") || String(getSelection())) return;
  let answer;
  try {
    answer = await fetch(location.href, { headers: { "X-Requested-With": "refresh" } });
  } catch {
    document.body.classList.add("stale"); // the dashboard itself is away: what is shown is old
    return;
  }
  document.body.classList.toggle("stale", !answer.ok || answer.redirected);
  if (!answer.ok || answer.redirected) return;
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  main.replaceChildren(...page.getElementById("main").childNodes);
  document.querySelector("footer").replaceWith(page.querySelector("footer"));
}

if (seconds) setInterval(refresh, seconds * 1000);

document.addEventListener("change", (event) => {
  const all = event.target.closest("[data-tick-all]");
  if (!all) return;
  for (const box of all.form.querySelectorAll(`input[name="${all.dataset.tickAll}"]`)) box.checked = all.checked;
});

document.addEventListener("click", (event) => {
  const asks = event.target.closest("[data-ask]");
  if (asks && !confirm(asks.dataset.ask)) event.preventDefault();
  if (event.target.closest("[data-back]") && history.length > 1) {
    event.preventDefault();
    history.back();
  }
});

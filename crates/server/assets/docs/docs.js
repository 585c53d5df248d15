// Search, copying, the language of the samples and the theme. Without this script the page shows everything.
"use strict";

const root = document.documentElement;
const store = {
  get(name) { try { return localStorage.getItem("limina.docs." + name); } catch { return null; } },
  set(name, value) { try { localStorage.setItem("limina.docs." + name, value); } catch { /* Private windows keep nothing. */ } },
};
const languages = { http: "HTTP", curl: "curl", python: "Python" };

// Before the body is shown, so that neither the theme nor the samples flicker.
if (store.get("theme")) root.dataset.theme = store.get("theme");
root.dataset.language = languages[store.get("language")] ? store.get("language") : "curl";

function element(tag, properties, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

addEventListener("DOMContentLoaded", () => {
  useThisAddress();
  addTheme();
  addTabs();
  addSearch();
  followContents();
});

// The snippets reach the server that served the page.
function useThisAddress() {
  const walker = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode;
    if (text.data.includes("http://127.0.0.1:7070")) text.data = text.data.replaceAll("http://127.0.0.1:7070", location.origin);
  }
}

function addTheme() {
  const isDark = () => root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  const button = element("button", { type: "button" });
  const show = () => {
    button.textContent = isDark() ? "Light" : "Dark";
    button.title = "Use the " + button.textContent.toLowerCase() + " theme";
  };
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    store.set("theme", root.dataset.theme);
    show();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", show);
  show();
  document.getElementById("tools").append(button);
}

function copyButton(find) {
  const button = element("button", { type: "button", className: "copy", textContent: "Copy" });
  button.addEventListener("click", async () => {
    const text = find().textContent;
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      // Without TLS a browser has no clipboard for scripts.
      const area = element("textarea", { value: text });
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
  return button;
}

function addTabs() {
  for (const request of document.querySelectorAll(".request")) {
    const tabs = element("div", { className: "tabs" });
    for (const [language, title] of Object.entries(languages)) {
      if (!request.querySelector("." + language)) continue;
      const tab = element("button", { type: "button", textContent: title });
      tab.dataset.language = language;
      tab.addEventListener("click", () => {
        const before = tab.getBoundingClientRect().top;
        root.dataset.language = language;
        store.set("language", language);
        showLanguage();
        // Samples above change their heights. The one that was clicked stays where it is.
        scrollBy({ top: tab.getBoundingClientRect().top - before, behavior: "instant" });
      });
      tabs.append(tab);
    }
    tabs.append(copyButton(() => [...request.querySelectorAll("pre")].find(pre => pre.offsetParent)));
    request.prepend(tabs);
  }
  for (const answer of document.querySelectorAll(".answer:has(pre)")) {
    answer.append(copyButton(() => answer.querySelector("pre")));
  }
  showLanguage();
}

function showLanguage() {
  for (const tab of document.querySelectorAll(".tabs [data-language]")) {
    const isMissing = !tab.closest(".request").querySelector("." + root.dataset.language);
    const shown = isMissing ? "http" : root.dataset.language;
    tab.setAttribute("aria-pressed", tab.dataset.language === shown);
  }
}

// Everything with an address can be found: calls, fields, error codes, conventions.
function searchable() {
  const entries = [];
  const add = (id, title, about, weight, words) => {
    const name = title.toLowerCase();
    entries.push({ id, title, about, weight, name, words: (name + " " + words).toLowerCase() });
  };
  for (const section of document.querySelectorAll(".call[id]")) {
    const title = section.querySelector("h4").textContent;
    const path = section.querySelector(".path").textContent;
    const summary = section.querySelector(".path + p").textContent;
    add(section.id, title, path.replace("/", " /"), 3, path + " " + section.id + " " + summary);
    for (const field of section.querySelectorAll(".fields [id]")) {
      const name = field.id.split(".").pop();
      const text = field.querySelector("p")?.textContent ?? "";
      add(field.id, name, title + ": " + text, 1, field.id.split(".").slice(2).join(".") + " " + text);
    }
  }
  for (const error of document.querySelectorAll(".error")) {
    add(error.id, error.id, error.querySelector("strong").textContent, 2, error.textContent);
  }
  for (const heading of document.querySelectorAll(".start h3[id]")) {
    const text = heading.nextElementSibling.textContent;
    add(heading.id, heading.textContent, text, 4, text);
  }
  return entries;
}

function addSearch() {
  const box = document.getElementById("search");
  const input = box.querySelector("input");
  const list = box.querySelector("ol");
  let entries = null;
  let chosen = 0;
  box.hidden = false;

  const score = (entry, terms) => {
    let total = entry.weight;
    for (const term of terms) {
      if (entry.name === term) total += 12;
      else if (entry.name.startsWith(term)) total += 7;
      else if (entry.name.includes(term)) total += 5;
      else if (entry.words.includes(term)) total += 1;
      else return 0;
    }
    return total;
  };
  const choose = number => {
    const items = list.querySelectorAll("li:not(.none)");
    if (!items.length) return;
    chosen = (number + items.length) % items.length;
    items.forEach((item, n) => item.classList.toggle("chosen", n === chosen));
    items[chosen].scrollIntoView({ block: "nearest" });
  };
  const clear = () => { input.value = ""; list.replaceChildren(); };
  const search = () => {
    const terms = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    entries ??= searchable();
    const found = terms.length ? entries.map(entry => [score(entry, terms), entry]).filter(([points]) => points) : [];
    found.sort(([a], [b]) => b - a);
    list.replaceChildren(...found.slice(0, 30).map(([, entry]) => element("li", {},
      element("a", { href: "#" + entry.id }, entry.title, element("small", { textContent: entry.about })))));
    if (terms.length && !found.length) list.append(element("li", { className: "none", textContent: "Nothing found" }));
    choose(0);
  };
  input.addEventListener("input", search);
  input.addEventListener("keydown", event => {
    if (event.key === "ArrowDown") choose(chosen + 1);
    else if (event.key === "ArrowUp") choose(chosen - 1);
    else if (event.key === "Enter") list.querySelector(".chosen a")?.click();
    else return;
    event.preventDefault();
  });
  list.addEventListener("click", event => { if (event.target.closest("a")) { clear(); input.blur(); } });
  document.addEventListener("click", event => { if (!box.contains(event.target)) list.replaceChildren(); });
  document.addEventListener("keydown", event => {
    if (event.key === "/" && !event.ctrlKey && !event.metaKey && !event.target.closest?.("input, textarea")) {
      event.preventDefault();
      input.focus();
    } else if (event.key === "Escape") {
      clear();
      input.blur();
    }
  });
}

// Marks in the contents what is being read.
function followContents() {
  const menu = document.getElementById("menu");
  const nav = document.querySelector("nav");
  nav.addEventListener("click", event => { if (event.target.closest("a")) menu.checked = false; });
  const links = new Map([...nav.querySelectorAll("li a")].map(link => [link.hash.slice(1), link]));
  let here = null;
  const mark = id => {
    const link = links.get(id);
    if (!link || link === here) return;
    here?.classList.remove("here");
    here = link;
    link.classList.add("here");
    const { top, bottom } = link.getBoundingClientRect();
    if (link.offsetParent && (top < 80 || bottom > innerHeight - 20)) link.scrollIntoView({ block: "center" });
  };
  const observer = new IntersectionObserver(seen => {
    for (const { isIntersecting, target } of seen) if (isIntersecting) mark(target.id);
  }, { rootMargin: "-15% 0px -80% 0px" });
  for (const id of links.keys()) {
    const target = document.getElementById(id);
    if (target) observer.observe(target);
  }
}

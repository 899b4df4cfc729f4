// The console's script. Every page reads and repairs without it; it adds live
// regions, the dialog, copy buttons, shortcuts and times in the reader's zone.
"use strict";
(() => {
  const root = document.documentElement;
  const $ = (sel, from = document) => from.querySelector(sel);
  const $$ = (sel, from = document) => [...from.querySelectorAll(sel)];
  const base = root.dataset.base || "";
  const region = () => $("#live[data-live]");
  root.dataset.js = "";

  // --- htmx may write what the server sent, and evaluates nothing ----------------

  function refuse() { throw new EvalError("the console evaluates no text"); }

  htmx.registerExtension("console-security", {
    init(api) {
      const rules = {
        createHTML(text) {
          // Our fragments carry no script, so one that does was not written by our templates.
          if (/<(script|iframe|object|embed|base|meta|link)[\s>/]/i.test(text)) throw new TypeError("active markup in a fragment");
          return text;
        },
        createScript: refuse,
      };
      api.initSecurity(window.trustedTypes ? trustedTypes.createPolicy("htmx", rules) : rules, refuse, refuse);
    },
    htmx_after_request(elt, { ctx }) {
      if (ctx.response?.status === 401 && elt !== region()) {
        live.out = true;
        live.lost(ended, true);
        return false;
      }
      // A whole page where a fragment was asked for: signed out, or a proxy's error.
      if (ctx.hx?.redirect || !/^\s*<(!doctype|html)/i.test(ctx.text)) return;
      if (elt !== region()) failed(ctx.response.status);
      return false;
    },
    htmx_before_swap(elt, { ctx, tasks }) {
      if (elt === region()) return live.arrived(ctx, tasks);
    },
    htmx_after_swap: () => pageChanged(),
  });

  // --- what the script says ------------------------------------------------------

  function element(tag, attrs, ...children) {
    const e = document.createElement(tag);
    for (const k in attrs) e.setAttribute(k, attrs[k]);
    e.append(...children);
    return e;
  }

  function say(text) {
    const s = $("#said");
    s.textContent = "";
    setTimeout(() => { s.textContent = text; }, 50);
  }

  function failed(status) {
    const why = status ? `The server answered ${status}.` : "The server could not be reached.";
    $("#alert")?.replaceChildren(element("div", { class: "notice s-dead", "data-testid": "flash" },
      element("p", {}, element("b", {}, "That did not work. "), why + " Reload the page to see what is true now.")));
  }

  const ended = "Your session has ended.";

  // --- live regions: one per page, polled, held still while somebody is at it ------

  const live = {
    paused: false, out: false, failures: 0, forced: false, held: null, timer: 0, inside: false,

    start() {
      if (!region()) return;
      const c = $("#live-control");
      c?.setAttribute("role", "button");
      c?.setAttribute("aria-pressed", "false");
      document.addEventListener("pointerover", (e) => {
        const was = this.inside;
        this.inside = !!e.target.closest("#live :is(table, .events, form, .lines, .feed), #more");
        if (was && !this.inside) this.release();
      });
      root.addEventListener("pointerleave", () => { this.inside = false; this.release(); });
      document.addEventListener("focusout", () => setTimeout(() => this.release()));
      document.addEventListener("close", () => this.release(), true);
      document.addEventListener("visibilitychange", () => { if (!document.hidden) this.ask(); });
      document.addEventListener("htmx:finally:request", (e) => { if (e.target === region()) this.ended(e.detail.ctx); });
      this.next();
    },

    next() {
      clearTimeout(this.timer);
      if (!region()) return;
      this.timer = setTimeout(() => this.ask(), Number(region().dataset.live) * (800 + 400 * Math.random()));
    },

    ask() {
      clearTimeout(this.timer);
      if (region() && !document.hidden) htmx.trigger(region(), "live", {}, false);
    },

    holding() {
      const r = region(), focus = document.activeElement, sel = getSelection();
      return this.paused || this.inside || !!$("dialog[open]") || !!$("input[type=checkbox]:checked", r) ||
        (r.contains(focus) && focus.matches(":focus-visible")) || (!sel.isCollapsed && r.contains(sel.anchorNode));
    },

    // arrived decides over an answer; false keeps it for later.
    arrived(ctx, tasks) {
      if (ctx.response.status >= 400) return false;
      const hold = !this.forced && this.holding();
      this.held = hold ? ctx : null;
      this.offer(hold ? this.changes(tasks[0].fragment) : 0);
      return !hold;
    },

    // changes counts the rows, cards and entries that differ.
    changes(fresh) {
      const texts = (from) => new Map($$("tr[id], li[id], .card, .events > li, .strip > div, h1", from).map((e, i) =>
        [e.id || i, e.textContent.replace(/\s+/g, " ")]));
      const now = texts(region()), then = texts(fresh);
      let n = 0;
      for (const [k, v] of then) if (now.get(k) !== v) n++;
      for (const k of now.keys()) if (!then.has(k)) n++;
      return n;
    },

    offer(n) {
      let box = $("#more");
      if (!n) return box?.remove();
      if (!box) {
        const b = element("button", { type: "button", class: "btn sm go" });
        b.addEventListener("click", () => this.release(true));
        box = element("div", { id: "more", class: "more", role: "status" }, b);
        region().before(box);
      }
      const text = `${n} ${n === 1 ? "change" : "changes"} — show`;
      if (box.firstChild.textContent !== text) box.firstChild.textContent = text;
    },

    release(force) {
      const ctx = this.held;
      if (!ctx || (!force && this.holding())) return;
      this.forced = true;
      Promise.resolve(htmx.swap(ctx)).finally(() => { this.forced = false; });
    },

    ended(ctx) {
      const status = ctx.response?.status || 0;
      if (status === 401) return this.lost(ended, true);
      if (status >= 200 && status < 400) {
        this.failures = 0;
        $("#connection").replaceChildren();
        this.clock(ctx.response.headers.get("Date"));
      } else if (++this.failures > 1) {
        this.lost(`Connection lost, showing ${$("#clock").textContent} UTC, retrying.`);
      }
      this.control();
      this.next();
    },

    clock(date) {
      const at = new Date(date || NaN), c = $("#clock");
      if (!c || isNaN(at)) return;
      const iso = at.toISOString();
      c.setAttribute("datetime", iso);
      c.title = `${iso.slice(0, 10)} ${iso.slice(11, 19)} UTC`;
      c.textContent = iso.slice(11, 19);
    },

    lost(text, signIn) {
      const p = element("p", {}, element("b", {}, text));
      if (signIn) p.append(" ", element("a", { href: base + "/login", target: "_blank", rel: "noopener" }, "Sign in again"), " in a new tab, then come back here.");
      const box = $("#connection");
      if (box.textContent !== p.textContent) box.replaceChildren(element("div", { class: "notice s-retrying" }, p));
      if (!signIn) return;
      this.failures = 2;
      this.control();
      this.next();
    },

    toggle() {
      if (!region()) { $("#live-control")?.click(); return; }
      this.paused = !this.paused;
      say(this.paused ? "Live updates paused" : "Live updates on");
      this.control();
      if (!this.paused) { this.release(true); this.ask(); }
    },

    control() {
      const c = $("#live-control"), stale = this.failures > 1;
      if (!c) return;
      $(".word", c).textContent = stale ? "Stale" : this.paused ? "Paused" : "Live";
      c.classList.remove("s-live", "s-retrying", "s-paused");
      c.classList.add(stale ? "s-retrying" : this.paused ? "s-paused" : "s-live");
      c.setAttribute("aria-pressed", String(this.paused));
    },
  };

  // --- the dialog: the confirmation page's form, fetched by the same link -----------

  async function openDialog(link) {
    const dialog = $("#dialog"), body = $("#dialog-body");
    body.replaceChildren();
    live.out = false;
    const done = busy(link);
    try {
      await htmx.ajax("GET", link.getAttribute("href"), { target: body, swap: "innerHTML", source: body });
    } finally {
      done();
    }
    if (live.out) return;
    if (!body.firstElementChild) { location.href = link.href; return; }
    dialog.showModal();
    ($("textarea, input:not([type=hidden])", body) || $("[data-close]", body) || $("button", body))?.focus();
  }

  // --- pressed buttons say what they do after 300 ms --------------------------------

  function busy(button) {
    const text = button?.dataset?.busy;
    const old = button && [...button.childNodes].find((n) => n.nodeType === 3 && n.data.trim());
    const was = old?.data;
    const timer = setTimeout(() => {
      root.dataset.busy = "";
      if (text && old) old.data = text;
      if (button?.tagName === "BUTTON") button.disabled = true;
    }, 300);
    return () => {
      clearTimeout(timer);
      delete root.dataset.busy;
      if (old) old.data = was;
      if (button?.tagName === "BUTTON") button.disabled = false;
    };
  }

  const sent = new Map(); // forms whose answer is awaited

  document.addEventListener("submit", (e) => {
    const form = e.target;
    if (form.method !== "post") return;
    if (sent.has(form)) {
      e.preventDefault();
      e.stopImmediatePropagation();
      return;
    }
    sent.set(form, busy(e.submitter || $("button", form)));
  }, true);

  document.addEventListener("htmx:finally:request", (e) => {
    const form = e.detail.ctx.sourceElement;
    sent.get(form)?.();
    sent.delete(form);
  });

  document.addEventListener("htmx:error", (e) => {
    const elt = e.detail.ctx?.sourceElement;
    if (elt && elt !== region()) failed(0);
  });

  addEventListener("pageshow", () => {
    for (const done of sent.values()) done();
    sent.clear();
  });

  // --- copying, over plain HTTP too ---------------------------------------------------

  async function copy(text, button) {
    let ok = false;
    if (navigator.clipboard && isSecureContext) ok = await navigator.clipboard.writeText(text).then(() => true, () => false);
    if (!ok) {
      const area = element("textarea", { class: "hide", "aria-hidden": "true" });
      area.value = text;
      ($("dialog[open]") || document.body).append(area);
      const focus = document.activeElement;
      area.select();
      ok = document.execCommand("copy");
      area.remove();
      focus?.focus({ preventScroll: true });
    }
    say(ok ? "Copied" : "Copying is not allowed here");
    const use = ok && button && $("use", button);
    if (!use) return;
    const was = use.getAttribute("href");
    use.setAttribute("href", was.replace(/#.*/, "#check"));
    setTimeout(() => use.setAttribute("href", was), 1500);
  }

  // --- clicks ---------------------------------------------------------------------------

  document.addEventListener("click", (e) => {
    if (e.defaultPrevented || e.button || e.ctrlKey || e.metaKey || e.shiftKey || e.altKey) return;
    const hit = e.target.closest("[data-copy], [data-copy-from], [data-dismiss], [data-dialog], [data-close], #live-control");
    if (!hit) return;
    const d = hit.dataset;
    if ("copy" in d) copy(d.copy, hit);
    else if ("copyFrom" in d) copy($("#" + d.copyFrom).textContent, hit);
    else if ("dismiss" in d) hit.closest(".notice").remove();
    else if ("close" in d && hit.closest("dialog")) hit.closest("dialog").close();
    else if ("dialog" in d && window.HTMLDialogElement) openDialog(hit);
    else if (hit.id === "live-control" && region()) live.toggle();
    else return;
    e.preventDefault();
  });

  // --- keyboard ---------------------------------------------------------------------------

  const themes = ["system", "light", "dark"];

  function nextTheme() {
    const theme = themes[(themes.indexOf(root.dataset.theme) + 1) % themes.length];
    root.dataset.theme = theme;
    document.cookie = `console_theme=${theme}; path=${base}/; max-age=31536000; samesite=lax${location.protocol === "https:" ? "; secure" : ""}`;
    const radio = $(`#display input[name=theme][value=${theme}]`);
    if (radio) radio.checked = true;
    say(`Theme: ${theme}`);
  }

  const row = () => document.activeElement?.closest("main tr[data-testid], main tr[data-id]");

  function move(step) {
    const rows = $$("main tr[data-testid], main tr[data-id]");
    const at = rows.indexOf(row());
    const to = rows[at < 0 ? (step > 0 ? 0 : rows.length - 1) : at + step];
    const link = to && $("a, button", to);
    link?.focus({ focusVisible: true });
    to?.scrollIntoView({ block: "nearest" });
  }

  const keys = {
    "?": () => $("#keys")?.showModal(),
    "/": () => $("#q")?.select(),
    j: () => move(1),
    k: () => move(-1),
    r: () => $("[data-act=replay]", row() || $(".page-head") || document.body)?.click(),
    y: () => { const id = (row() || $(".page-head"))?.dataset.id; if (id) copy(id); },
    "[": () => $("main a[rel=prev]")?.click(),
    "]": () => $("main a[rel=next]")?.click(),
    u: () => $("[data-up]")?.click(),
    p: () => live.toggle(),
    t: nextTheme,
    g: () => { going = Date.now(); },
  };
  let going = 0;

  document.addEventListener("keydown", (e) => {
    if (e.key === "Escape") {
      hideTip();
      if (document.activeElement === $("#q")) $("#q").blur();
      else if (!$("dialog[open], :popover-open")) $("#flash")?.replaceChildren();
      return;
    }
    if (document.body.dataset.keys === "off" || e.defaultPrevented || e.ctrlKey || e.metaKey || e.altKey || e.isComposing) return;
    if (e.target.closest("input, textarea, select, [contenteditable], dialog")) return;
    const link = Date.now() - going < 1500 && $(`[data-go="${CSS.escape(e.key)}"]`);
    going = 0;
    const act = link ? () => link.click() : Object.hasOwn(keys, e.key) && keys[e.key];
    if (!act) return;
    e.preventDefault();
    act();
  });

  // --- times: the absolute one on hover and focus, clocks in the reader's zone -----------------

  let tip = null;

  function showTip(at, text) {
    hideTip();
    tip = element("div", { class: "tip", popover: "manual", role: "tooltip" }, text);
    document.body.append(tip);
    tip.showPopover?.();
    const r = at.getBoundingClientRect();
    tip.style.left = Math.max(4, Math.min(r.left, innerWidth - tip.offsetWidth - 4)) + "px";
    tip.style.top = (r.bottom + 4 + tip.offsetHeight > innerHeight ? r.top - tip.offsetHeight - 4 : r.bottom + 4) + "px";
  }

  function hideTip() { tip?.remove(); tip = null; }

  function absolute(t) {
    if (t.title) { t.dataset.full = t.title; t.removeAttribute("title"); }
    const at = new Date(t.dateTime), zone = new Intl.DateTimeFormat(undefined, { timeZoneName: "short", dateStyle: undefined, hour: "2-digit", minute: "2-digit", second: "2-digit" });
    const full = t.dataset.full || "";
    return isNaN(at) || !at.getTimezoneOffset() ? full : `${full}\n${zone.format(at)}`;
  }

  document.addEventListener("pointerover", (e) => {
    const t = e.target.closest("time");
    if (t) showTip(t, absolute(t));
    else if (tip) hideTip();
  });

  document.addEventListener("focusin", (e) => {
    hideTip();
    if (!e.target.matches(":focus-visible")) return;
    const home = e.target.closest("tr, .events > li, .feed > li, .lines > li, .facts > div, .banner, .verdict, .live");
    const times = home ? $$("time", home) : [];
    if (times.length) showTip(times[0], times.map(absolute).join("\n"));
  });

  document.addEventListener("focusout", hideTip);
  addEventListener("scroll", hideTip, { passive: true, capture: true });

  function localTimes() {
    if (root.dataset.times !== "local") return;
    const today = new Date().toDateString();
    for (const t of $$("main time[datetime], .banner time[datetime]")) {
      const at = new Date(t.dateTime);
      if (isNaN(at)) continue;
      const clock = at.toLocaleTimeString("en-GB");
      const text = at.toDateString() === today ? clock : at.toLocaleDateString("en-GB", { day: "2-digit", month: "short" }) + ", " + clock;
      if (t.textContent !== text) t.textContent = text;
    }
  }

  // --- a page's own sections --------------------------------------------------------------------

  function spy() {
    const nav = $("[data-spy]");
    if (!nav) return;
    const links = $$("a", nav);
    let now = links[0];
    for (const a of links) if ($(a.hash)?.getBoundingClientRect().top < 160) now = a;
    if (innerHeight + scrollY >= document.body.scrollHeight - 2 && location.hash) now = links.find((a) => a.hash === location.hash) || now;
    for (const a of links) a === now ? a.setAttribute("aria-current", "true") : a.removeAttribute("aria-current");
  }

  function revealTarget() {
    const t = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!t) return;
    for (let d = t.closest("details"); d; d = d.parentElement.closest("details")) d.open = true;
    const more = document.getElementById(t.id + "-open");
    if (more) more.open = true;
    t.scrollIntoView();
  }

  function checkJSON(area) {
    const hint = $("#hint-payload");
    let text = "JSON, numbers are kept digit for digit.";
    try { if (area.value.trim()) JSON.parse(area.value); area.removeAttribute("aria-invalid"); } catch (err) {
      text = "Not JSON yet: " + err.message;
      area.setAttribute("aria-invalid", "true");
    }
    hint.textContent = text;
  }

  let ending = 0;

  // sessionEnd warns five minutes before; staying signed in leaves the page as it is.
  function sessionEnd(ends) {
    const at = new Date(ends || NaN);
    clearTimeout(ending);
    if (isNaN(at)) return;
    ending = setTimeout(() => {
      const stay = element("button", { type: "button", class: "btn sm" }, "Stay signed in");
      const box = element("div", { class: "notice s-retrying" }, element("p", {}, element("b", {}, "You will be signed out in 5 minutes.")), stay);
      stay.addEventListener("click", async () => {
        const r = await fetch(base + "/account/extend", { method: "POST" }).catch(() => null);
        if (r?.status === 401) { box.remove(); return live.lost(ended, true); }
        if (!r?.ok) return failed(r?.status);
        const then = new Date(r.headers.get("Session-Ends"));
        if (then - Date.now() < 300000) { box.replaceChildren(element("p", {}, `It cannot last longer than until ${then.toLocaleTimeString("en-GB")}: sign in again after that.`)); return; }
        box.remove();
        say("You stay signed in");
        sessionEnd(then);
      });
      $("#alert")?.replaceChildren(box);
    }, Math.min(Math.max(at - Date.now() - 300000, 0), 2 ** 31 - 1));
  }

  function pageChanged() {
    localTimes();
    spy();
  }

  document.addEventListener("change", (e) => { if (e.target.matches("[data-json]")) checkJSON(e.target); });
  document.addEventListener("toggle", (e) => { if (e.target.id === "rail" && e.newState === "open") $("a", e.target)?.focus(); }, true);
  addEventListener("scroll", spy, { passive: true });
  addEventListener("hashchange", revealTarget);
  addEventListener("beforeprint", () => { for (const d of $$("main details:not(.filter)")) d.open = true; });

  live.start();
  sessionEnd(document.body.dataset.sessionEnds);
  pageChanged();
  revealTarget();
  $("#problems")?.focus();
})();

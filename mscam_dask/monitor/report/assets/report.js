"use strict";
(() => {
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const holder = document.getElementById("payload");
  const data = holder ? JSON.parse(holder.textContent) : { plots: {}, names: [], columns: [], blocks: [] };
  const tip = document.getElementById("tip");

  // ---- tooltips ------------------------------------------------------------------------------
  function say(text, x, y) {
    tip.textContent = text;
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    const left = Math.min(x + 14, innerWidth - box.width - 8);
    const top = y + 18 + box.height > innerHeight ? y - box.height - 12 : y + 18;
    tip.style.left = `${Math.max(4, left)}px`;
    tip.style.top = `${Math.max(4, top)}px`;
  }
  const hush = () => { tip.hidden = true; };
  const middle = (element) => {
    const box = element.getBoundingClientRect();
    return [box.left + box.width / 2, box.top + box.height / 2];
  };
  document.addEventListener("pointermove", (event) => {
    const target = event.target.closest("[data-tip]");
    if (target) say(target.dataset.tip, event.clientX, event.clientY);
    else if (!event.target.closest("svg.scatter, svg.matrix")) hush();
  });
  document.addEventListener("focusin", (event) => {
    const target = event.target.closest("button[data-tip]");
    if (target && target.matches(":focus-visible")) say(target.dataset.tip, ...middle(target));
  });
  document.addEventListener("focusout", hush);
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") { hush(); ring(-1); } });

  const moves = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
  function onArrows(svg, step) {
    svg.addEventListener("keydown", (event) => {
      const edge = event.key === "Home" ? -Infinity : event.key === "End" ? Infinity : undefined;
      const by = edge ?? moves[event.key];
      if (by === undefined) return;
      event.preventDefault();
      step(by, event.key);
    });
  }
  const clamp = (value, low, high) => Math.max(low, Math.min(high, value));

  for (const row of all(".tall .taken")) row.closest(".tall").scrollTop = row.offsetTop - 3 * row.offsetHeight;

  // ---- line charts ---------------------------------------------------------------------------
  for (const svg of all("svg.steps")) {
    let at = -1;
    const clear = () => all(".on", svg).forEach((mark) => mark.classList.remove("on"));
    onArrows(svg, (by) => {
      const marks = all(".line:not(.off) .step", svg);
      if (!marks.length) return;
      at = clamp(at + by, 0, marks.length - 1);
      clear();
      marks[at].classList.add("on");
      say(marks[at].dataset.tip, ...middle(marks[at]));
    });
    svg.addEventListener("pointermove", (event) => {
      const spot = inside(svg, event);
      let best = null, least = 900;
      for (const mark of all(".line:not(.off) .step", svg)) {
        const off = (mark.cx.baseVal.value - spot.x) ** 2 + (mark.cy.baseVal.value - spot.y) ** 2;
        if (off < least) { least = off; best = mark; }
      }
      clear();
      if (!best) return;
      best.classList.add("on");
      say(best.dataset.tip, event.clientX, event.clientY);
      event.stopPropagation();
    });
    svg.addEventListener("pointerleave", () => { clear(); hush(); });
    svg.addEventListener("blur", clear);
  }
  for (const button of all("[data-toggle]")) {
    button.addEventListener("click", () => {
      const shown = button.getAttribute("aria-pressed") !== "true";
      button.setAttribute("aria-pressed", shown);
      const many = all("svg.steps").filter((svg) => all(".line", svg).length > 1);
      for (const svg of many)
        for (const line of all(`[data-line="${button.dataset.toggle}"]`, svg)) line.classList.toggle("off", !shown);
    });
  }

  function inside(svg, event) {
    const at = new DOMPoint(event.clientX, event.clientY);
    return at.matrixTransform(svg.getScreenCTM().inverse());
  }

  // ---- linked samples in all plots -----------------------------------------------------
  const plots = all("svg.scatter").map((svg) => ({
    svg, ring: svg.querySelector(".ring"), planes: data.plots[svg.dataset.plot].planes, plane: 0,
  }));
  let picked = null, column = null;

  function about(point) {
    const parts = [`sample ${data.names[point]}`, `cluster ${data.clusters[point]}`];
    if (data.labels.length) parts.push(`class ${data.labels[point]}`);
    if (data.next.length) parts.push(`confidence ${data.columns.find((one) => one.name === "confidence").values[point].toFixed(4)} (next: cluster ${data.next[point]})`);
    if (column && !["class", "confidence"].includes(column.name)) parts.push(`${column.name} ${valueOf(column, point)}`);
    return parts.join(" · ");
  }
  function ring(point) {
    for (const plot of plots) {
      const places = plot.planes[plot.plane];
      plot.ring.setAttribute("cx", point < 0 ? -50 : places[2 * point]);
      plot.ring.setAttribute("cy", point < 0 ? -50 : places[2 * point + 1]);
    }
    for (const button of all(".show")) {
      const on = point >= 0 && Number(button.dataset.show) === point;
      button.setAttribute("aria-pressed", on);
      button.closest("tr").classList.toggle("on", on);
    }
  }
  for (const plot of plots) {
    let at = -1;
    plot.svg.addEventListener("pointermove", (event) => {
      const spot = inside(plot.svg, event);
      const places = plot.planes[plot.plane];
      let best = -1, least = 1600;
      for (let point = 0; point < data.names.length; point++) {
        if (picked !== null && data.clusters[point] !== picked) continue;
        const off = (places[2 * point] - spot.x) ** 2 + (places[2 * point + 1] - spot.y) ** 2;
        if (off < least) { least = off; best = point; }
      }
      at = best;
      ring(best);
      if (best < 0) hush(); else say(about(best), event.clientX, event.clientY);
    });
    plot.svg.addEventListener("pointerleave", () => { ring(-1); hush(); });
    onArrows(plot.svg, (by) => {
      at = clamp(at + by, 0, data.names.length - 1);
      while (picked !== null && data.clusters[at] !== picked && at > 0 && at < data.names.length - 1) at += Math.sign(by);
      ring(at);
      say(about(at), ...middle(plot.ring));
    });
    plot.svg.addEventListener("blur", () => { ring(-1); });
  }
  for (const button of all(".show"))
    button.addEventListener("click", () => {
      ring(button.getAttribute("aria-pressed") === "true" ? -1 : Number(button.dataset.show));
    });

  // ---- colors of the samples: their clusters, or one of their properties ---------------------------
  const RAMP = ["#440154", "#472d7b", "#3b528b", "#2c728e", "#21918c", "#28ae80", "#5ec962", "#addc30", "#fde725"];
  const STEPS = 32, MISSING = "#c9ced6";
  const valueOf = (of, point) => {
    const value = of.values[point];
    return value === null ? "missing" : of.categories ? of.categories[value] : value;
  };
  function rampAt(share) {
    const at = share * (RAMP.length - 1), low = Math.min(Math.floor(at), RAMP.length - 2);
    const channel = (text, index) => parseInt(text.slice(1 + 2 * index, 3 + 2 * index), 16);
    const mixed = [0, 1, 2].map((index) => {
      const [a, b] = [channel(RAMP[low], index), channel(RAMP[low + 1], index)];
      return Math.round(a + (at - low) * (b - a));
    });
    return `rgb(${mixed.join(", ")})`;
  }
  function range(of) {
    const known = of.values.filter((value) => value !== null);
    return [Math.min(...known), Math.max(...known)];
  }
  function colorsOf(of) {  // of each sample
    if (of.categories) return of.values.map((value) => (value === null ? MISSING : data.palette[value % data.palette.length]));
    const [low, high] = range(of), span = high - low || 1;
    return of.values.map((value) => (value === null ? MISSING : rampAt(Math.round((STEPS * (value - low)) / span) / STEPS)));
  }
  const made = (name, attributes, parent) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    parent.append(element);
    return element;
  };
  const dot = (places, point) => `M${places[2 * point]} ${places[2 * point + 1]}h0`;
  function paint(plot) {
    const places = plot.planes[plot.plane], svg = plot.svg;
    const groups = new Map();
    const add = (key, point) => { if (!groups.has(key)) groups.set(key, []); groups.get(key).push(point); };
    data.clusters.forEach((cluster, point) => add(cluster, point));
    const half = (values) => values.sort((a, b) => a - b)[values.length >> 1];
    for (const path of all("path.dots:not(.painted)", svg))
      path.setAttribute("d", groups.get(Number(path.dataset.cluster)).map((point) => dot(places, point)).join(""));
    for (const text of all("text.number", svg)) {
      const seen = groups.get(Number(text.dataset.cluster)).filter((point) => places[2 * point] >= 0);
      if (!seen.length) continue;
      text.setAttribute("x", half(seen.map((point) => places[2 * point])));
      text.setAttribute("y", half(seen.map((point) => places[2 * point + 1])) + 12);
    }
    all(".painted", svg).forEach((path) => path.remove());
    svg.classList.toggle("repainted", column !== null);
    if (column !== null) {
      groups.clear();
      const colors = colorsOf(column);
      colors.forEach((color, point) => add(picked !== null && data.clusters[point] !== picked ? "" : color, point));
      const group = all("path.dots", svg).at(-1).parentNode;
      for (const [color, points] of groups) {
        made("path", { class: color ? "dots painted" : "dots painted away", color: color || MISSING, d: points.map((point) => dot(places, point)).join("") }, group);
      }
    }
    for (const mark of all("[data-cluster]", svg))
      mark.classList.toggle("away", picked !== null && Number(mark.dataset.cluster) !== picked);
  }
  function legend(list) {
    list.replaceChildren();
    if (column === null) return;
    const item = (text) => {
      const line = document.createElement("li");
      line.append(text);
      list.append(line);
      return line;
    };
    const swatch = (color, line) => {
      const svg = made("svg", { viewBox: "0 0 10 10", "aria-hidden": "true" }, line);
      made("circle", { cx: 5, cy: 5, r: 5, fill: color }, svg);
      line.prepend(svg);
      line.dataset.color = color;
    };
    if (column.categories)
      column.categories.forEach((name, index) => {
        if (column.values.includes(index)) swatch(data.palette[index % data.palette.length], item(name));
      });
    else if (column.values.some((value) => value !== null)) {
      const [low, high] = range(column), line = item(String(low));
      const svg = made("svg", { viewBox: "0 0 32 10", preserveAspectRatio: "none", class: "ramp", "aria-hidden": "true" }, line);
      for (let step = 0; step < STEPS; step++)
        made("rect", { x: step, width: 1.1, height: 10, fill: rampAt(step / (STEPS - 1)) }, svg);
      line.append(String(high));
    }
    if (column.values.includes(null)) swatch(MISSING, item("missing"));
  }
  for (const choice of all("[data-color]"))
    choice.addEventListener("change", () => {
      column = choice.value === "" ? null : data.columns[Number(choice.value)];
      for (const other of all("[data-color]")) other.value = choice.value;
      all(".legend").forEach(legend);
      plots.forEach(paint);
      for (const plot of plots) plot.svg.dataset.color = column === null ? "" : column.name;
    });

  // ---- one cluster alone -----------------------------------------------------------------------
  for (const button of all("[data-pick]"))
    button.addEventListener("click", () => {
      const cluster = Number(button.dataset.pick);
      picked = picked === cluster ? null : cluster;
      for (const other of all("[data-pick]")) other.setAttribute("aria-pressed", Number(other.dataset.pick) === picked);
      plots.forEach(paint);
    });

  // ---- axes of an embedding --------------------------------------------------------------------
  for (const choice of all("[data-planes]"))
    choice.addEventListener("change", () => {
      const plot = plots.find((one) => one.svg.dataset.plot === choice.dataset.planes);
      plot.plane = Number(choice.value);
      plot.svg.dataset.plane = choice.value;
      paint(plot);
      ring(-1);
    });

  // ---- blocks of the matrix --------------------------------------------------------------------
  const matrix = document.querySelector("svg.matrix");
  if (matrix && data.blocks.length) {
    const sizes = data.sizes, names = data.blocks, total = sizes.reduce((a, b) => a + b, 0);
    const edges = [0];
    for (const size of sizes) edges.push(edges[edges.length - 1] + (1000 * size) / total);
    const block = matrix.querySelector(".block");
    const between = new Map(data.pairs.map(([one, other, weight]) => [`${one} ${other}`, Math.round(1000 * weight) / 1000]));
    let row = 0, column = 0;
    const show = (x, y) => {
      block.setAttribute("x", edges[column]);
      block.setAttribute("y", edges[row]);
      block.setAttribute("width", edges[column + 1] - edges[column]);
      block.setAttribute("height", edges[row + 1] - edges[row]);
      const weight = between.get(`${names[Math.min(row, column)]} ${names[Math.max(row, column)]}`) ?? 0;
      const text = row === column ? `within cluster ${names[row]} (${sizes[row]} samples): weight ${weight}` : `between clusters ${names[row]} and ${names[column]}: weight ${weight}`;
      say(text, ...(x === undefined ? middle(block) : [x, y]));
    };
    const found = (value) => edges.findIndex((edge) => edge > value) - 1;
    matrix.addEventListener("pointermove", (event) => {
      const spot = inside(matrix, event);
      if (spot.x < 0 || spot.y < 0 || spot.x >= 1000 || spot.y >= 1000) { hush(); return; }
      row = found(spot.y);
      column = found(spot.x);
      show(event.clientX, event.clientY);
    });
    const leave = () => { block.setAttribute("width", 0); block.setAttribute("height", 0); hush(); };
    matrix.addEventListener("pointerleave", leave);
    matrix.addEventListener("blur", leave);
    onArrows(matrix, (by, key) => {
      const last = sizes.length - 1;
      if (key === "ArrowUp" || key === "ArrowDown") row = clamp(row + by, 0, last);
      else column = clamp(column + by, 0, last);
      show();
    });
  }

  // ---- tables ----------------------------------------------------------------------------------
  for (const table of all("table.sortable")) {
    const body = table.tBodies[0];
    all("thead th", table).forEach((head, index) => {
      const button = head.querySelector("button");
      if (!button) return;
      button.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") === "ascending";
        for (const other of all("th[aria-sort]", table)) other.setAttribute("aria-sort", "none");
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const key = (line) => line.cells[index].dataset.v;
        const order = (a, b) => {
          const [x, y] = [key(a), key(b)];
          const both = x !== "" && y !== "" && !isNaN(x) && !isNaN(y);
          return both ? x - y : x.localeCompare(y, undefined, { numeric: true });
        };
        const lines = [...body.rows].sort(order);
        body.append(...(down ? lines.reverse() : lines));
      });
    });
  }
  for (const input of all("[data-search]")) {
    const body = document.getElementById(input.dataset.search).tBodies[0];
    const counter = document.querySelector(`[data-count="${input.dataset.search}"]`);
    input.addEventListener("input", () => {
      const wanted = input.value.trim().toLowerCase();
      let shown = 0;
      for (const line of body.rows) {
        const text = all("[data-v]", line).map((cell) => cell.dataset.v).join(" ").toLowerCase();
        line.hidden = !text.includes(wanted);
        shown += !line.hidden;
      }
      counter.textContent = wanted ? `${shown} of ${body.rows.length} shown` : "";
    });
  }
})();

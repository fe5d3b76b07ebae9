// Figures of the page as SVG files, and their numbers as CSV files.
(() => {
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const SVG = "http://www.w3.org/2000/svg";
  const STYLES = ["fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linecap", "stroke-linejoin", "opacity", "paint-order", "font-size", "font-weight", "font-family", "text-anchor", "dominant-baseline", "image-rendering"];
  const holder = document.getElementById("payload");
  const data = holder ? JSON.parse(holder.textContent) : {};

  function make(name, attributes, parent) {
    const element = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (parent) parent.append(element);
    return element;
  }
  function save(name, text, type) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type }));
    link.download = name.replace(/[^\p{L}\p{N}._-]+/gu, "-");
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  // ---- SVG -------------------------------------------------------------------------------------
  function inLight(work) {  // exported figures are for white paper
    const root = document.documentElement;
    root.classList.add("light");
    try { return work(); } finally { root.classList.remove("light"); }
  }
  function copyOf(svg) {
    const copy = svg.cloneNode(true), copies = all("*", copy);
    all("*", svg).forEach((element, index) => {
      const style = getComputedStyle(element), target = copies[index];
      if (style.display === "none" || element.matches(".ring, .block")) target.dataset.gone = "";
      for (const name of STYLES) target.setAttribute(name, style.getPropertyValue(name));
    });
    all("[data-gone]", copy).forEach((element) => element.remove());
    for (const element of [copy, ...all("*", copy)])
      for (const { name } of [...element.attributes])
        if (/^(data-|aria-|class$|role$|tabindex$)/.test(name)) element.removeAttribute(name);
    return copy;
  }
  function entries(svg) {  // of the legend
    if (svg.matches(".scatter.repainted"))
      return all("li", svg.closest("section").querySelector(".legend")).map((line) => ({
        text: line.textContent, color: line.dataset.color, ramp: line.querySelector("svg.ramp"),
      }));
    const lines = all(".line:not(.off)", svg);
    return lines.length < 2 ? [] : lines.map((line) => {
      const style = getComputedStyle(svg.querySelector(`.curve[data-line="${line.dataset.line}"]`));
      return { text: line.dataset.name, color: style.stroke, dash: style.strokeDasharray };
    });
  }
  function svgOf(svg) {
    return inLight(() => {
      const copy = copyOf(svg), listed = entries(svg);
      const [x, y, width, height] = svg.getAttribute("viewBox").split(/[\s,]+/).map(Number);
      const size = 0.03 * width, side = listed.length ? 0.35 * width : 0;
      copy.setAttribute("xmlns", SVG);
      copy.setAttribute("viewBox", `${x} ${y} ${width + side} ${height}`);
      copy.setAttribute("width", Math.round((600 * (width + side)) / width));
      copy.setAttribute("height", Math.round((600 * height) / width));
      copy.prepend(make("rect", { x, y, width: width + side, height, fill: "#ffffff" }));
      const title = make("title", {});
      title.textContent = svg.getAttribute("aria-label");
      copy.prepend(title);
      listed.forEach((entry, index) => {
        const at = y + (index + 1.2) * 1.5 * size, left = x + width + size;
        if (entry.ramp) {
          const strip = make("svg", { x: left, y: at - size / 2, width: 4 * size, height: size, viewBox: "0 0 32 10", preserveAspectRatio: "none" }, copy);
          for (const step of entry.ramp.children) strip.append(step.cloneNode());
        } else if (entry.dash !== undefined)
          make("path", { d: `M${left} ${at}h${2 * size}`, stroke: entry.color, "stroke-width": size / 6, "stroke-dasharray": entry.dash }, copy);
        else make("circle", { cx: left + size, cy: at, r: size / 2, fill: entry.color }, copy);
        const shift = entry.ramp ? 4.5 : 2.5;
        const ends = entry.ramp ? [...entry.ramp.parentNode.childNodes].filter((node) => node.nodeType === 3).map((node) => node.data).join(" – ") : entry.text;
        const text = make("text", { x: left + shift * size, y: at, "font-size": size, "dominant-baseline": "central", "font-family": "sans-serif", fill: "#1b2430" }, copy);
        text.textContent = ends;
      });
      return new XMLSerializer().serializeToString(copy);
    });
  }
  function barsOf(list) {
    return inLight(() => {
      const rows = all("li", list), svg = make("svg", { xmlns: SVG, viewBox: `0 0 600 ${20 * rows.length + 10}`, width: 600, height: 20 * rows.length + 10, "font-family": "sans-serif", "font-size": 13 });
      make("rect", { width: "100%", height: "100%", fill: "#ffffff" }, svg);
      rows.forEach((row, index) => {
        const bar = row.querySelector("rect"), y = 20 * index + 15;
        const [who, much] = [".who", ".much"].map((name) => row.querySelector(name).textContent);
        make("text", { x: 155, y, "text-anchor": "end", "dominant-baseline": "central", fill: "#1b2430" }, svg).textContent = who;
        make("rect", { x: 165, y: y - 7, width: 3.6 * bar.getAttribute("width"), height: 14, fill: getComputedStyle(bar).fill }, svg);
        make("text", { x: 595, y, "text-anchor": "end", "dominant-baseline": "central", fill: "#1b2430" }, svg).textContent = much;
      });
      return new XMLSerializer().serializeToString(svg);
    });
  }

  // ---- CSV -------------------------------------------------------------------------------------
  const plain = (text) => text.replace(/\u202f/g, "").replace(/\u2212/g, "-").replace(/\s+/g, " ").trim();
  function field(value) {
    let text = value === null || value === undefined ? "" : String(value);
    if (/^\s*[=+\-@|'＝＋－＠｜]/.test(text) && !/^-?[\d.]+(e[-+]?\d+)?( ?%)?$/i.test(text)) text = `'${text}`;  // a formula in spreadsheets
    return /[",\n\r]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
  }
  const csv = (rows) => rows.map((row) => row.map(field).join(",")).join("\n") + "\n";
  function pointsOf(svg) {
    const plane = Number(svg.dataset.plane), plot = data.plots[svg.dataset.plot];
    const places = plot.planes[plane], [x, y, unit] = plot.frames[plane];
    const names = (plot.names[plane].match(/\d+/g) || ["x", "y"]).map((name) => (/\d/.test(name) ? `axis_${name}` : name));
    const rows = data.names.map((name, point) => {
      const [i, j] = [places[2 * point], places[2 * point + 1]];
      const spot = i < 0 ? [null, null] : [x + (i - 500) * unit, y - (j - 500) * unit].map((value) => Number(value.toPrecision(6)));
      const own = data.columns.map((column) => (column.categories && column.values[point] !== null ? column.categories[column.values[point]] : column.values[point]));
      return [name, data.clusters[point], ...own, ...spot];
    });
    return [["sample", "cluster", ...data.columns.map((column) => column.name), ...names], ...rows];
  }
  function curvesOf(svg) {
    const lines = all(".line", svg), at = new Map();
    lines.forEach((line, index) => {
      for (const mark of all(".step", line)) {
        if (!at.has(mark.dataset.at)) at.set(mark.dataset.at, lines.map(() => null));
        at.get(mark.dataset.at)[index] = mark.dataset.value;
      }
    });
    const rows = [...at].sort((a, b) => a[0] - b[0]).map(([key, values]) => [key, ...values]);
    return [[svg.dataset.x, ...lines.map((line) => line.dataset.name || svg.dataset.export)], ...rows];
  }
  const cellsOf = (table) => [...table.rows].map((row) => [...row.cells].filter((cell) => !cell.querySelector(".show, .hidden")).map((cell) => cell.dataset.v ?? plain(cell.textContent)));
  const barsTable = (list) => [["name", "value"], ...all("li", list).map((row) => [".who", ".much"].map((name) => plain(row.querySelector(name).textContent)))];

  function csvOf(element) {
    if (element.matches(".scatter")) return csv(pointsOf(element));
    if (element.matches(".matrix")) return csv([["cluster", "other_cluster", "weight"], ...data.pairs]);
    if (element.matches(".lines")) return csv(curvesOf(element));
    if (element.matches(".tree")) return `${element.dataset.csv}\n`;
    return csv(element.matches("table") ? cellsOf(element) : barsTable(element));
  }

  // ---- buttons ---------------------------------------------------------------------------------
  for (const element of all("[data-export]")) {
    const line = document.createElement("p");
    line.className = "save";
    const offer = (kind, write) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = kind;
      button.setAttribute("aria-label", `Save ${element.dataset.export} as ${kind}`);
      button.addEventListener("click", write);
      line.append(button);
    };
    const name = element.dataset.export;
    if (!element.matches("table"))
      offer("SVG", () => save(`${name}.svg`, element.matches("svg") ? svgOf(element) : barsOf(element), "image/svg+xml"));
    offer("CSV", () => save(`${name}.csv`, csvOf(element), "text/csv"));
    (element.closest(".scroll") || element).after(line);
  }
})();

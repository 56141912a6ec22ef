// Draws the map, and lets a press on a class pick it out. Runs once, at the end of the page.
(() => {
  "use strict";
  const map = document.getElementById("map");
  const everything = document.getElementById("everything");
  const lines = [...document.querySelectorAll("[data-class]")];
  const { traces, labels } = JSON.parse(document.getElementById("map-values").textContent);

  if (!document.createElement("canvas").getContext("webgl")) for (const trace of traces) trace.type = "scatter";

  const hidden = { visible: false };
  const font = { family: getComputedStyle(map).fontFamily, size: 13 };
  const layout = {
    annotations: labels,
    xaxis: hidden,
    yaxis: { ...hidden, scaleanchor: "x" },
    margin: { l: 8, r: 8, t: 8, b: 8 },
    paper_bgcolor: "transparent",
    plot_bgcolor: "transparent",
    font,
    hoverlabel: { font },
    hovermode: "closest",
    dragmode: matchMedia("(pointer: coarse)").matches ? false : "pan", // a finger scrolls the page
    modebar: { bgcolor: "transparent", color: "#888", activecolor: "#888" },
    showlegend: false, // the list of classes is the legend
  };
  const config = {
    responsive: true,
    displaylogo: false,
    toImageButtonOptions: { filename: "map" },
    // These and no others: left alone, plotly adds a button that uploads the values to its cloud.
    modeBarButtons: [["toImage"], ["zoom2d", "pan2d"], ["zoomIn2d", "zoomOut2d", "resetScale2d"]],
  };

  const picked = () => lines.filter((line) => line.ariaPressed === "true");
  const show = () => {
    const some = picked().map((line) => Number(line.dataset.class));
    everything.hidden = some.length === 0;
    Plotly.restyle(map, { opacity: traces.map((_, i) => (some.length === 0 || some.includes(i) ? 1 : 0.08)) });
  };
  const toggle = (line) => {
    line.ariaPressed = String(line.ariaPressed !== "true");
    show();
  };

  // Names give way to one another: that of a larger class keeps its place, others move up or down, or are left out.
  let settling = false;
  const settle = async () => {
    if (settling) return;
    settling = true;
    await Plotly.relayout(map, { annotations: labels });
    const frame = map.getBoundingClientRect();
    const taken = [];
    const placed = labels.map((label, i) => {
      const text = map.querySelector(`.annotation[data-index="${i}"] .annotation-text-g`);
      if (!text) return label;
      const { left, right, top, height } = text.getBoundingClientRect();
      for (const step of [0, 1, -1, 2, -2, 3, -3, 4, -4]) {
        const upper = top - step * height;
        const inside = step === 0 || (upper >= frame.top && upper + height <= frame.bottom);
        const clash = (other) =>
          left < other.right && other.left < right && upper < other.bottom && other.upper < upper + height;
        if (!inside || taken.some(clash)) continue;
        taken.push({ left, right, upper, bottom: upper + height });
        return { ...label, yshift: step * height };
      }
      return { ...label, visible: false };
    });
    await Plotly.relayout(map, { annotations: placed });
    settling = false;
  };

  map.replaceChildren();
  Plotly.newPlot(map, traces, layout, config).then(() => {
    settle();
    map.on("plotly_relayout", settle);
    map.on("plotly_click", ({ points }) => toggle(lines[points[0].curveNumber]));
    for (const line of lines) line.addEventListener("click", () => toggle(line));
    everything.addEventListener("click", () => {
      for (const line of picked()) line.ariaPressed = "false";
      show();
    });
    for (const moment of ["beforeprint", "afterprint"]) addEventListener(moment, () => Plotly.Plots.resize(map));
  });
})();

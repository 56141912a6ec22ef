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

  map.replaceChildren();
  Plotly.newPlot(map, traces, layout, config).then(() => {
    map.on("plotly_click", ({ points }) => toggle(lines[points[0].curveNumber]));
    for (const line of lines) line.addEventListener("click", () => toggle(line));
    everything.addEventListener("click", () => {
      for (const line of picked()) line.ariaPressed = "false";
      show();
    });
    for (const moment of ["beforeprint", "afterprint"]) addEventListener(moment, () => Plotly.Plots.resize(map));
  });
})();

const root = document.documentElement;
const dark = matchMedia("(prefers-color-scheme: dark)");
const button = document.getElementById("theme");
button.hidden = false;
button.addEventListener("click", () => {
  const shown = root.dataset.theme ?? (dark.matches ? "dark" : "light");
  root.dataset.theme = shown === "dark" ? "light" : "dark";
});
addEventListener("beforeprint", () => {
  for (const details of document.querySelectorAll("details")) details.open = true;
});

// The projection's assumptions: the formulas of results::projection, computed anew on each change.
const form = document.getElementById("assumptions");
if (form) {
  const number = (name) => Number(form.elements[name].value);
  const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
  const show = (row, cycles, utilisation, frequency, cores) => {
    const iops = (cores * frequency * utilisation) / cycles;
    const hours = ((number("bytes") / 512) * cycles) / (cores * frequency) / 3600;
    const energy = (hours * number("watts") * cores) / 1000;
    const servers = hours / utilisation / 8760 / number("years");
    const shown = [cycles, iops, iops * 512 / 1e6, servers, energy];
    const cells = row.querySelectorAll("td.r");
    shown.forEach((value, index) => {
      const isFine = Number.isFinite(value);
      cells[index].textContent = isFine ? value.toLocaleString("en", { maximumSignificantDigits: 3 }) : "\u2013";
    });
  };
  const compute = () => {
    const cores = number("cores");
    for (const body of document.querySelectorAll("#projection tbody[data-load]")) {
      const frequency = number("ghz") > 0 ? number("ghz") * 1e9 : Number(body.dataset.frequency);
      const work = [];
      for (const row of body.querySelectorAll("tr")) {
        if (row.dataset.one) {
          const { one, growth, measured } = row.dataset;
          const cycles = Number(one) + Number(growth) * (cores - 1);
          const low = number("low") > 0 ? number("low") : Number(measured);
          const utilisation = body.dataset.load === "high" ? number("high") : low;
          work.push([cycles, utilisation]);
          show(row, cycles, utilisation, frequency, cores);
        } else if (row.dataset.mean === "iops") {
          const cycles = 1 / mean(work.map(([it]) => 1 / it));
          const utilisation = cycles * mean(work.map(([it, share]) => share / it));
          show(row, cycles, utilisation, frequency, cores);
        } else {
          const cycles = mean(work.map(([it]) => it));
          const utilisation = cycles / mean(work.map(([it, share]) => it / share));
          show(row, cycles, utilisation, frequency, cores);
        }
      }
    }
  };
  form.hidden = false;
  document.getElementById("assumed").hidden = false;
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", compute);
  compute();
}

"use strict";
// A click on a heading sorts its table by that column; a second click turns the order round.
for (const table of document.querySelectorAll("table.sortable")) {
  const headings = [...table.tHead.rows[0].cells];
  headings.forEach((heading, column) => {
    heading.querySelector("button").addEventListener("click", () => {
      const descending = heading.getAttribute("aria-sort") === "ascending"
        || (heading.dataset.first === "descending" && !heading.hasAttribute("aria-sort"));
      headings.forEach((other) => other.removeAttribute("aria-sort"));
      heading.setAttribute("aria-sort", descending ? "descending" : "ascending");
      const key = (row) => {
        const value = row.cells[column].dataset.value;
        const number = Number(value);
        return value === "" ? null : Number.isNaN(number) ? value : number;
      };
      const rows = [...table.tBodies[0].rows];
      rows.sort((a, b) => {
        const [x, y] = [key(a), key(b)];
        if (x === null || y === null) return (x === null) - (y === null);
        const order = typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y));
        return descending ? -order : order;
      });
      table.tBodies[0].append(...rows);
    });
  });
}

"use strict";
// Click on a heading: ascending, again: descending. Numbers by value, words by letter; "not estimable" stays last.
(function () {
  function key(row, column) {
    var text = row.cells[column].getAttribute("data-sort");
    var number = Number(text);
    if (text === "inf") { return Infinity; }
    if (text === "-inf") { return -Infinity; }
    return text === "" || Number.isNaN(number) ? text : number;
  }
  function compare(a, b) {
    if (typeof a === "number" && typeof b === "number") { return a - b; }
    if (typeof a === "number") { return -1; }
    if (typeof b === "number") { return 1; }
    return a < b ? -1 : a > b ? 1 : 0;
  }
  function sort(table, column) {
    var head = table.tHead.rows[0].cells[column];
    var down = head.getAttribute("aria-sort") === "ascending";
    Array.prototype.forEach.call(table.tHead.rows[0].cells, function (cell) { cell.removeAttribute("aria-sort"); });
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    var body = table.tBodies[0];
    var rows = Array.prototype.slice.call(body.rows).map(function (row) { return [key(row, column), row]; });
    rows.sort(function (x, y) {
      if (x[0] === "nan" || y[0] === "nan") { return (x[0] === "nan") - (y[0] === "nan"); }
      return down ? compare(y[0], x[0]) : compare(x[0], y[0]);
    });
    rows.forEach(function (pair) { body.appendChild(pair[1]); });
  }
  Array.prototype.forEach.call(document.querySelectorAll("table.sortable"), function (table) {
    Array.prototype.forEach.call(table.tHead.rows[0].cells, function (cell, column) {
      cell.querySelector("button").addEventListener("click", function () { sort(table, column); });
    });
  });
})();

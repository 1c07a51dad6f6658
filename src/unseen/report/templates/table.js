(function () {
  "use strict";
  var source = document.getElementById("records-data");
  if (!source) return;
  var given = JSON.parse(source.textContent);
  var columns = given.columns.map(function (one) {
    return one.values || one.at.map(function (place) { return one.of[place]; });
  });
  var SIDE = 1, SCORE = 2, FPR = 3, PAGE = 50;
  var get = function (id) { return document.getElementById("records-" + id); };
  var table = get("table"), body = table.tBodies[0], heads = table.tHead.rows[0].cells;
  var state = { by: SCORE, down: true, page: 0, rows: [] };

  function text(column, row) {
    var value = columns[column][row];
    if (value === null) return "";
    if (column === SIDE) return value ? "member" : "non-member";
    if (column === SCORE) return value.toFixed(given.digits);
    if (column === FPR) {
      if (!value) return given.least;
      return (value >= 0.001 ? (100 * value).toFixed(1) : (100 * value).toPrecision(2)) + "%";
    }
    return String(value);
  }

  function isNumber(column) { return given.numeric.indexOf(column) >= 0; }

  function choose() {
    var wanted = get("filter").value.trim().toLowerCase(), side = get("side").value;
    var rows = [];
    for (var row = 0; row < given.n; row++) {
      if (side !== "" && String(columns[SIDE][row]) !== side) continue;
      var found = wanted === "";
      for (var column = 0; column < columns.length && !found; column++) {
        if (column === SIDE || isNumber(column)) continue;
        found = text(column, row).toLowerCase().indexOf(wanted) >= 0;
      }
      if (found) rows.push(row);
    }
    var values = columns[state.by], sign = state.down ? -1 : 1;
    rows.sort(function (a, b) {
      var x = values[a], y = values[b];
      // What has no value is last either way; what is equal stays in the order of scores.
      if (x === null || y === null) return x === y ? a - b : x === null ? 1 : -1;
      return x < y ? -sign : x > y ? sign : a - b;
    });
    state.rows = rows;
    state.page = 0;
    show();
  }

  function show() {
    var pages = Math.max(1, Math.ceil(state.rows.length / PAGE));
    var first = state.page * PAGE, rows = state.rows.slice(first, first + PAGE);
    body.replaceChildren.apply(body, rows.map(function (row) {
      var line = document.createElement("tr");
      columns.forEach(function (_, column) {
        var cell = document.createElement("td"), inner = document.createElement("bdi");
        if (isNumber(column)) cell.className = "number";
        inner.textContent = text(column, row);
        cell.appendChild(inner);
        line.appendChild(cell);
      });
      return line;
    }));
    get("status").textContent = rows.length
      ? (first + 1) + " to " + (first + rows.length) + " of " + state.rows.length
      : "no record matches";
    get("back").disabled = state.page === 0;
    get("next").disabled = state.page >= pages - 1;
  }

  function turn(step) {
    return function () { state.page += step; show(); };
  }

  function download() {
    var lines = [given.names.map(quoted).join(",")];
    state.rows.forEach(function (row) {
      lines.push(columns.map(function (values, column) {
        return isNumber(column) ? String(values[row]) : quoted(text(column, row));
      }).join(","));
    });
    var link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([lines.join("\r\n") + "\r\n"], { type: "text/csv" }));
    link.download = "records.csv";
    link.click();
    URL.revokeObjectURL(link.href);
  }

  function quoted(value) {
    // A spreadsheet would run what begins like a formula.
    var safe = /^[=+\-@\t\r]/.test(value) ? "'" + value : value;
    return '"' + safe.replace(/"/g, '""') + '"';
  }

  Array.prototype.forEach.call(heads, function (head, column) {
    var button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    button.addEventListener("click", function () {
      state.down = state.by === column ? !state.down : isNumber(column);
      state.by = column;
      Array.prototype.forEach.call(heads, function (one) { one.removeAttribute("aria-sort"); });
      head.setAttribute("aria-sort", state.down ? "descending" : "ascending");
      choose();
    });
    head.replaceChildren(button);
  });
  get("filter").addEventListener("input", choose);
  get("side").addEventListener("change", choose);
  get("back").addEventListener("click", turn(-1));
  get("next").addEventListener("click", turn(1));
  get("csv").addEventListener("click", download);
  get("controls").hidden = get("pages").hidden = false;
  get("static").hidden = true;
  choose();
})();

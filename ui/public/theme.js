// Before the first paint, so that a chosen theme does not flash.
try {
  var chosen = localStorage.getItem("everthink.theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch (e) {}

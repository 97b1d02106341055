// A form bound to a widget's traits. Python decides everything; this only carries values to and fro:
//   name=TRAIT            a control that shows and sets a trait       data-max=TRAIT   its largest value
//   data-show=TRAIT       an element whose content is a trait's HTML  data-if=TRAIT    seen while the trait is true
//   data-do=METHOD        a button that calls a method                data-pressed=TRAIT  whether it is pressed
//   data-set=TRAIT data-value=VALUE   a button that sets a trait      aria-keyshortcuts  the key that clicks it
function render({ model, el }) {
  el.innerHTML = model.get("form");
  const all = (query) => [...el.querySelectorAll(query)];
  const listening = [];
  const follow = (trait, update) => {
    update();
    model.on(`change:${trait}`, update);
    listening.push([`change:${trait}`, update]);
  };
  const set = (trait, value) => {
    model.set(trait, typeof model.get(trait) === "number" ? Number(value) : value);
    model.save_changes();
  };
  const write = (control) => {
    if (control.type === "checkbox") control.checked = model.get(control.name);
    else if (control.value !== String(model.get(control.name))) control.value = model.get(control.name);
  };

  for (const element of all("[data-max]"))
    follow(element.dataset.max, () => { element.max = model.get(element.dataset.max); });
  for (const element of all("[data-show]"))
    follow(element.dataset.show, () => {
      const focus = element.contains(document.activeElement) ? document.activeElement.dataset.value : undefined;
      element.innerHTML = model.get(element.dataset.show);
      if (element.name) write(element);
      if (focus !== undefined) {
        const again = [...element.querySelectorAll("[data-value]")].find((one) => one.dataset.value === focus);
        element.tabIndex = -1;
        (again || element).focus();
      }
    });
  for (const element of all("[data-if]"))
    follow(element.dataset.if, () => { element.hidden = !model.get(element.dataset.if); });
  for (const element of all("[data-pressed]"))
    follow(element.dataset.pressed, () => element.setAttribute("aria-pressed", model.get(element.dataset.pressed)));
  for (const control of all("[name]")) {
    follow(control.name, () => write(control));
    control.addEventListener("change", () => {
      if (control.type !== "number" || control.value !== "")
        set(control.name, control.type === "checkbox" ? control.checked : control.value);
    });
  }
  el.addEventListener("click", (event) => {
    const button = event.target.closest("[data-do],[data-set]");
    if (button?.dataset.do) model.send({ do: button.dataset.do });
    else if (button) set(button.dataset.set, button.dataset.value);
  });
  el.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.key === "Escape") return;
    event.stopPropagation(); // a notebook would take arrows and letters for its own
    if (event.target.matches("input:not([type=range]),select,textarea")) return;
    const button = all("[aria-keyshortcuts]").find((one) => one.getAttribute("aria-keyshortcuts") === event.key);
    if (button) {
      event.preventDefault();
      button.click();
    }
  });
  return () => listening.forEach(([event, update]) => model.off(event, update));
}
export default { render };

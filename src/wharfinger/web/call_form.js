import { h } from "vue";

// A form for the arguments of a tool or prompt, or for a question of a server. All values are sent as they are typed;
// `arguments_of` (schema_fields.py) checks them, and says which are wrong.
export default {
  props: { name: String, fields: Array, errors: Object, buttons: Array, busy: Boolean },
  emits: ["submitted"],
  data() {
    return { values: Object.fromEntries(this.fields.map((field) => [field.name, field.value])) };
  },
  methods: {
    control(field, id) {
      const error = this.errors?.[field.name];
      const described = [field.description && id + "-d", error && id + "-e"].filter(Boolean).join(" ") || undefined;
      const common = {
        id,
        name: field.name,
        "aria-describedby": described,
        "aria-invalid": error ? "true" : undefined,
        "aria-required": field.required ? "true" : undefined,
      };
      const typed = { onInput: (event) => (this.values[field.name] = event.target.value) };
      const value = this.values[field.name];
      if (field.kind === "checkbox")
        return h("input", {
          ...common,
          type: "checkbox",
          checked: value,
          onChange: (event) => (this.values[field.name] = event.target.checked),
        });
      if (field.kind === "select" || field.kind === "several")
        return h(
          "select",
          {
            ...common,
            multiple: field.kind === "several",
            onChange: (event) => {
              const chosen = [...event.target.selectedOptions].map((option) => option.value);
              this.values[field.name] = field.kind === "several" ? chosen : chosen[0];
            },
          },
          field.options.map(([key, label]) =>
            h("option", { value: key, selected: field.kind === "several" ? value.includes(key) : key === value }, label),
          ),
        );
      if (field.kind === "json" || field.kind === "lines")
        return h("textarea", { ...common, ...typed, value, rows: 3, spellcheck: "false" });
      return h("input", {
        ...common,
        ...typed,
        value,
        type: "text",
        inputmode: field.kind === "number" ? "decimal" : undefined,
        autocomplete: "off",
      });
    },
    submit(event, button) {
      event.preventDefault();
      this.$emit("submitted", { button, values: this.values });
    },
  },
  render() {
    const rows = this.fields.map((field, index) => {
      const id = `${this.name}-${index}`;
      const error = this.errors?.[field.name];
      return h("div", { class: ["field", "field-" + field.kind], key: field.name }, [
        h("label", { for: id }, [h("bdi", {}, field.label), field.required ? " (required)" : ""]),
        this.control(field, id),
        field.description ? h("p", { id: id + "-d", class: "detail" }, field.description) : null,
        error ? h("p", { id: id + "-e", class: "error", role: "alert" }, error) : null,
      ]);
    });
    const buttons = this.buttons.map((label, index) =>
      h(
        "button",
        {
          type: index ? "button" : "submit",
          class: index ? "" : "primary",
          disabled: this.busy && index === 0,
          onClick: index ? (event) => this.submit(event, label) : undefined,
        },
        label,
      ),
    );
    return h("form", { class: "call-form", onSubmit: (event) => this.submit(event, this.buttons[0]) }, [
      ...rows,
      h("div", { class: "buttons" }, buttons),
    ]);
  },
};

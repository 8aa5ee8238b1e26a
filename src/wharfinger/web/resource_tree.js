import { h } from "vue";

// A tree of the rows of `TreeRows` (WAI-ARIA Authoring Practices, tree view). Vue sets every text as text.
const ICONS = { server: "▣", folder: "▸", resource: "·", template: "{}", tool: "ƒ", prompt: "¶", more: "…" };

export default {
  props: { rows: Array, selected: String, label: String },
  emits: ["toggle", "choose"],
  data() {
    return { focused: null };
  },
  computed: {
    current() {
      const keys = this.rows.map((row) => row.key);
      if (keys.includes(this.focused)) return this.focused;
      return keys.includes(this.selected) ? this.selected : keys[0];
    },
  },
  methods: {
    act(row) {
      this.focused = row.key;
      this.$emit(row.expanded === undefined && row.kind !== "more" ? "choose" : "toggle", row.key);
    },
    focus(index) {
      const row = this.rows[Math.max(0, Math.min(index, this.rows.length - 1))];
      if (!row) return;
      this.focused = row.key;
      this.$nextTick(() => this.$el.querySelector('[tabindex="0"]')?.focus());
    },
    pressed(event, row, index) {
      const keys = {
        ArrowDown: () => this.focus(index + 1),
        ArrowUp: () => this.focus(index - 1),
        Home: () => this.focus(0),
        End: () => this.focus(this.rows.length - 1),
        PageDown: () => this.focus(index + 20),
        PageUp: () => this.focus(index - 20),
        Enter: () => this.act(row),
        " ": () => this.act(row),
        ArrowRight: () => (row.expanded === false ? this.act(row) : this.focus(index + 1)),
        ArrowLeft: () => {
          if (row.expanded === true) return this.act(row);
          for (let i = index - 1; i >= 0; i--) if (this.rows[i].level < row.level) return this.focus(i);
        },
      };
      if (!(event.key in keys) || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      keys[event.key]();
    },
  },
  render() {
    const rows = this.rows.map((row, index) =>
      h(
        "div",
        {
          key: row.key,
          role: "treeitem",
          class: ["row", "row-" + row.kind, row.key === this.selected && "row-selected"],
          "aria-level": row.level,
          "aria-expanded": row.expanded === undefined ? undefined : String(row.expanded),
          "aria-selected": String(row.key === this.selected),
          "aria-posinset": row.position || undefined,
          "data-key": row.key,
          tabindex: row.key === this.current ? 0 : -1,
          title: row.title || undefined,
          style: { paddingInlineStart: `${0.4 + 0.9 * (row.level - 1)}rem` },
          onClick: () => this.act(row),
          onKeydown: (event) => this.pressed(event, row, index),
        },
        [
          h("span", { class: "icon", "aria-hidden": "true" }, row.expanded === true ? "▾" : ICONS[row.kind] || "·"),
          h("bdi", { class: "name" }, row.label),
          row.detail ? h("span", { class: "detail" }, row.detail) : null,
          row.badge ? h("span", { class: "badge" }, row.badge) : null,
        ],
      ),
    );
    return h("div", { role: "tree", "aria-label": this.label, class: "tree" }, rows);
  },
};

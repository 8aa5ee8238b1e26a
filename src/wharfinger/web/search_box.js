import { h } from "vue";

// The search field. `/` leads to it from anywhere on the page, Escape empties it.
export default {
  props: { status: String, canSearchContents: Boolean },
  emits: ["search"],
  data() {
    return { text: "", contents: false, timer: null };
  },
  mounted() {
    this.listener = (event) => {
      const typing = /^(input|textarea|select)$/i.test(event.target.tagName);
      if (event.key !== "/" || typing || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      this.$el.querySelector("input").focus();
    };
    document.addEventListener("keydown", this.listener);
  },
  unmounted() {
    document.removeEventListener("keydown", this.listener);
    clearTimeout(this.timer);
  },
  methods: {
    changed(delay) {
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.$emit("search", { words: this.text.slice(0, 500), contents: this.contents }), delay);
    },
  },
  render() {
    const input = h("input", {
      type: "search",
      id: "search",
      value: this.text,
      maxlength: 500,
      autocomplete: "off",
      spellcheck: "false",
      onInput: (event) => {
        this.text = event.target.value;
        this.changed(150);
      },
      onKeydown: (event) => {
        if (event.key === "Escape") {
          this.text = "";
          this.changed(0);
        } else if (event.key === "Enter") this.changed(0);
      },
    });
    const contents = h("label", { class: "check" }, [
      h("input", {
        type: "checkbox",
        id: "search-contents",
        checked: this.contents,
        onChange: (event) => {
          this.contents = event.target.checked;
          this.changed(0);
        },
      }),
      " Contents too",
    ]);
    return h("div", { class: "search", role: "search" }, [
      h("label", { for: "search" }, ["Search ", h("kbd", {}, "/")]),
      input,
      this.canSearchContents ? contents : null,
      h("p", { role: "status", class: "detail" }, this.status || ""),
    ]);
  },
};

import { h } from "vue";
import DOMPurify from "dompurify";

// Shows the HTML of `markdown_html`, which is sanitised already, and sanitises it once more.
export default {
  props: { html: String },
  mounted() {
    this.show();
  },
  updated() {
    this.show();
  },
  methods: {
    show() {
      this.$el.replaceChildren(
        DOMPurify.sanitize(this.html, { RETURN_DOM_FRAGMENT: true, FORBID_TAGS: ["style", "form", "input"] }),
      );
    },
  },
  render() {
    return h("div", { class: "markdown", dir: "auto" });
  },
};

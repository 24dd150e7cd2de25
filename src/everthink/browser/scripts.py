"""What is asked inside a page: in a world of its own, where the page's scripts have changed nothing.

A form or a picture can still shadow a property of its document by its name, so the document is asked through
its prototype. All is bounded here: what a page holds may be endless.
"""

from __future__ import annotations

import json
from typing import Any

__all__ = ["COUNT", "COVERED", "FILL", "LINKS", "READABLE", "SCRAPE", "STATE", "called"]

_ALL = "const all = (css) => Array.from(Document.prototype.querySelectorAll.call(document, css));"

STATE = """() => ({
    title: String(Object.getOwnPropertyDescriptor(Document.prototype, "title").get.call(document))
        .slice(0, 500),
    status: performance.getEntriesByType("navigation")[0]?.responseStatus || null,
})"""

COUNT = "() => Document.prototype.getElementsByTagName.call(document, '*').length"

READABLE = """(most) => {
    const root = Object.getOwnPropertyDescriptor(Document.prototype, "documentElement").get.call(document);
    const html = Object.getOwnPropertyDescriptor(Element.prototype, "outerHTML").get.call(root);
    const copy = new DOMParser().parseFromString(html.slice(0, most), "text/html");
    const all = (css) => Array.from(Document.prototype.querySelectorAll.call(copy, css));
    for (const one of all("script,style,noscript,template,svg,iframe,object,embed,link,meta")) one.remove();
    for (const one of all("a[href]")) one.setAttribute("href", one.href);
    for (const one of all("img[src]")) {
        if (one.getAttribute("src").startsWith("data:")) one.remove(); else one.setAttribute("src", one.src);
    }
    const whole = Object.getOwnPropertyDescriptor(Document.prototype, "documentElement").get.call(copy);
    return { html: whole.outerHTML.slice(0, most), isCut: html.length > most };
}"""

LINKS = (
    "(most) => {"
    + _ALL
    + """
    const found = new Map();
    for (const one of all("a[href],area[href]")) {
        const url = String(one.href);
        if (!/^https?:/.test(url) || url.length > 2000) continue;
        const text = (one.innerText || one.getAttribute("aria-label") || one.getAttribute("title") || "")
            .replace(/\\s+/g, " ").trim().slice(0, 200);
        if (!found.get(url)) found.set(url, text);
        if (found.size >= most) break;
    }
    return Array.from(found, ([url, text]) => ({ text, url }));
}"""
)

SCRAPE = (
    "(selectors, most) => {"
    + _ALL
    + """
    const own = Object.getOwnPropertyDescriptor(Element.prototype, "attributes");
    return selectors.map((selector) => {
        try {
            const found = all(selector);
            return {
                selector,
                count: found.length,
                matches: found.slice(0, most).map((one) => ({
                    text: (one.innerText ?? one.textContent ?? "").trim().slice(0, 2000),
                    html: one.outerHTML.slice(0, 4000),
                    attributes: Object.fromEntries(
                        Array.from(own.get.call(one)).slice(0, 50)
                            .map((it) => [it.name, it.value.slice(0, 2000)])),
                })),
            };
        } catch (error) { return { selector, error: "This is no CSS selector that can be read." }; }
    });
}"""
)

# --- of one element

COVERED = """function (x, y) {
    const top = Document.prototype.elementFromPoint.call(document, x, y);
    const own = this.nodeType === 1 ? this : this.parentElement;
    if (!top || !own || own === top || own.contains(top) || top.contains(own)) return null;
    if (own.closest("label") && top.closest("label") === own.closest("label")) return null;
    const name = top.id ? "#" + top.id : top.className ? "." + String(top.className).split(" ")[0] : "";
    return (top.tagName.toLowerCase() + name).slice(0, 80);
}"""

FILL = """function (text) {
    const kind = this.tagName;
    if (kind === "SELECT") {
        const wanted = text.trim();
        const all = Array.from(this.options).slice(0, 2000);
        const option = all.find((it) => it.label.trim() === wanted || it.value === wanted);
        if (!option) return "no option: " + all.map((it) => it.label.trim()).slice(0, 50).join(", ");
        option.selected = true;
        this.dispatchEvent(new Event("input", { bubbles: true }));
        this.dispatchEvent(new Event("change", { bubbles: true }));
        return "chosen";
    }
    const others = ["file", "checkbox", "radio", "button", "submit", "image", "reset"];
    if (kind === "INPUT" && others.includes(this.type)) return "not text: " + this.type;
    if (this.disabled || this.readOnly) return "not writable";
    if (kind !== "INPUT" && kind !== "TEXTAREA" && !this.isContentEditable)
        return "not text: " + kind.toLowerCase();
    this.focus();
    if (this.isContentEditable) {
        const range = document.createRange();
        range.selectNodeContents(this);
        const selection = getSelection();
        selection.removeAllRanges();
        selection.addRange(range);
    } else this.select();
    return "ready";
}"""


def called(function: str, *arguments: Any) -> str:
    """An expression that calls one of these functions."""
    return f"({function})({', '.join(json.dumps(argument) for argument in arguments)})"

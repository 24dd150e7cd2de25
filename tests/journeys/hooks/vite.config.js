export default { root: "page", base: "./", build: { emptyOutDir: true, modulePreload: { polyfill: false } } };

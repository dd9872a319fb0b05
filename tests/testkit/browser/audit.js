// The findings of an audit of a page: structure, contrast by WCAG AA, sizes of targets, and its width.
(() => {
  const findings = [];
  const shown = (each) => each.checkVisibility({ visibilityProperty: true });
  const label = (each) => `<${each.localName}${each.className ? ` class="${each.className}"` : ""}> ${each.textContent.trim().slice(0, 40)}`;

  const ids = [...document.querySelectorAll("[id]")].map((each) => each.id);
  ids.filter((id, index) => ids.indexOf(id) !== index).forEach((id) => findings.push(`two elements have the id ${id}`));

  const headings = [...document.querySelectorAll("h1, h2, h3")].map((each) => Number(each.localName[1]));
  if (headings.filter((level) => level === 1).length !== 1) findings.push("the page has not one main heading");
  headings.forEach((level, index) => {
    if (level > (index ? headings[index - 1] : 0) + 1) findings.push(`heading ${index + 1} leaves out a level`);
  });

  for (const table of document.querySelectorAll("table")) {
    if (!table.tHead) findings.push("a table has no head");
    for (const head of table.querySelectorAll("th")) {
      if (!head.scope || !head.textContent.trim()) findings.push(`a header has no scope or no text: ${label(head)}`);
    }
  }
  for (const image of document.querySelectorAll("img:not([alt])")) findings.push(`no alternative: ${image.src}`);

  const numbers = (colour) => colour.match(/[\d.]+/g).map(Number);
  const over = ([r, g, b, a = 1], back) => [r, g, b].map((each, index) => each * a + back[index] * (1 - a));
  const background = (each) => {
    const layers = [];
    for (let at = each; at; at = at.parentElement) {
      const colour = numbers(getComputedStyle(at).backgroundColor);
      layers.push(colour);
      if (colour.length === 3 || colour[3] === 1) break;
    }
    return layers.reverse().reduce((back, layer) => over(layer, back), [255, 255, 255]);
  };
  const luminance = (colour) => {
    const [r, g, b] = colour.map((each) => (each / 255 <= 0.04045 ? each / 255 / 12.92 : ((each / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (first, second) => {
    const [dark, light] = [luminance(first), luminance(second)].sort((a, b) => a - b);
    return (light + 0.05) / (dark + 0.05);
  };
  const check = (each, colour, back, least, what) => {
    const found = contrast(over(numbers(colour), back), back);
    if (found < least) findings.push(`contrast of ${what} is ${found.toFixed(2)}, not ${least}: ${label(each)}`);
  };
  for (const each of document.querySelectorAll("body *")) {
    if (!shown(each)) continue;
    const style = getComputedStyle(each);
    const hasText = [...each.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.data.trim());
    const size = parseFloat(style.fontSize);
    const isLarge = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    if (hasText) check(each, style.color, background(each), isLarge ? 3 : 4.5, "text");
    if (each.matches("input, select, textarea") && each.type !== "checkbox") {
      check(each, style.color, background(each), 4.5, "a field's text");
      check(each, style.borderTopColor, background(each.parentElement), 3, "a field's border");
      if (each.placeholder) check(each, getComputedStyle(each, "::placeholder").color, background(each), 4.5, "a placeholder");
    }
    if (each.matches("button, summary, select, input:not([type='checkbox']), header nav a, .button")) {
      const { width, height } = each.getBoundingClientRect();
      if (Math.min(width, height) < 24) findings.push(`a target is only ${width} x ${height}: ${label(each)}`);
    }
  }

  const { scrollWidth } = document.documentElement;
  if (scrollWidth > innerWidth) findings.push(`the page is ${scrollWidth} wide in a window of ${innerWidth}`);
  return findings;
})();

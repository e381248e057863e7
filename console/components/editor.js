/**
 * An editor of the language. It stands in a shadow root, so that its styles are adopted style sheets, which
 * the policy of the page allows; its colours are those of the page.
 */
import { mode } from '../storeql.js';
import { html, useEffect, useRef, useState } from '../vendor/preact.js';
import { Missing } from './loaded.js';

const STYLE = {
  '&': { height: '100%', backgroundColor: 'var(--card)', color: 'var(--ink)', fontSize: '0.8125rem' },
  '&.cm-focused': { outline: 'none' },
  '.cm-scroller': { fontFamily: 'var(--mono)', lineHeight: '1.55' },
  '.cm-content': { caretColor: 'var(--ink)' },
  '.cm-cursor': { borderLeftColor: 'var(--ink)' },
  '.cm-gutters': { backgroundColor: 'var(--raised)', color: 'var(--soft)', border: '0' },
  '.cm-activeLine, .cm-activeLineGutter': { backgroundColor: 'color-mix(in srgb, var(--raised) 60%, transparent)' },
  '&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground':
    { backgroundColor: 'color-mix(in srgb, var(--accent) 30%, transparent)' },
  '.cm-matchingBracket': { backgroundColor: 'var(--tint)', outline: '1px solid var(--accent)' },
  '.cm-tooltip': { backgroundColor: 'var(--card)', color: 'var(--ink)', border: '1px solid var(--edge)' },
  '.cm-tooltip-autocomplete ul li[aria-selected]': { backgroundColor: 'var(--accent)', color: 'var(--on-accent)' },
  '.cm-completionDetail': { color: 'inherit', opacity: '0.8' },
  '.cm-panels': { backgroundColor: 'var(--raised)', color: 'var(--ink)' },
  '.cm-placeholder': { color: 'var(--soft)' },
};

/** Colours of what the mode tells apart. */
const COLOURS = (tags) => [
  { tag: tags.keyword, color: 'var(--accent)', fontWeight: '600' },
  { tag: tags.string, color: 'var(--text)' },
  { tag: [tags.number, tags.atom], color: 'var(--number)' },
  { tag: tags.comment, color: 'var(--soft)', fontStyle: 'italic' },
  { tag: [tags.typeName, tags.labelName], color: 'var(--second)' },
];

/**
 * @param {object} props `label`; `value` (another one replaces what stands there); `onInput(text)`; `onRun(selected)`
 *   (Cmd or Ctrl with Enter: the text that is selected, or null); `marks` ([{from, to, message}]); `complete`
 *   (a CompletionSource of CodeMirror); `held` (a ref: `held.current()` is the selected text or null)
 */
export function Editor({ label, value, onInput, onRun, marks = [], complete, held }) {
  const host = useRef(null);
  const view = useRef(null);
  const told = useRef([]);
  const latest = useRef({});
  const [lost, lose] = useState(false);
  const input = (text) => {
    told.current.push(text);
    onInput?.(text);
  };
  latest.current = { value, input, onRun, complete, marks };
  useEffect(() => {
    let over = false;
    import('../vendor/codemirror.js').then((cm) => {
      if (over) return;
      const root = host.current.shadowRoot ?? host.current.attachShadow({ mode: 'open' });
      root.replaceChildren();
      view.current = new cm.EditorView({
        root, parent: root, state: cm.EditorState.create({ doc: latest.current.value, extensions: extensions(cm, latest, label) }),
      });
      view.current.marks = (found) => view.current.dispatch(cm.setDiagnostics(view.current.state, found));
      mark(view.current, latest.current.marks);
    }, () => over || lose(true));
    return () => {
      over = true;
      view.current?.destroy();
      view.current = null;
    };
  }, []);
  useEffect(() => {
    const { current } = view;
    const known = told.current.indexOf(value);
    told.current.splice(0, known + 1);
    // A text that was typed here comes back with the next drawing, when more may have been typed.
    if (known >= 0 || !current || current.state.doc.toString() === value) return;
    current.dispatch({ changes: { from: 0, to: current.state.doc.length, insert: value } });
  }, [value]);
  useEffect(() => {
    if (view.current) mark(view.current, marks);
  }, [marks]);
  if (held) held.current = () => selected(view.current);
  return html`<div class="editor" ref=${host}></div>${lost && html`<${Missing} what="the editor" />`}`;
}

function mark(view, marks) {
  const end = view.state.doc.length;
  view.marks(marks.map(({ from, to, message }) => ({
    from: Math.min(from, end), to: Math.min(Math.max(to, from), end), severity: 'error', message,
  })));
}

function selected(view) {
  const range = view?.state.selection.main;
  return range && !range.empty ? { text: view.state.sliceDoc(range.from, range.to), at: range.from } : null;
}

function extensions(cm, latest, label) {
  const run = (view) => {
    latest.current.onRun?.(selected(view));
    return true;
  };
  return [
    cm.keymap.of([{ key: 'Mod-Enter', run, preventDefault: true }]),
    cm.lineNumbers(), cm.highlightActiveLine(), cm.highlightActiveLineGutter(), cm.history(), cm.drawSelection(),
    cm.bracketMatching(), cm.closeBrackets(), cm.highlightSelectionMatches(), cm.lintGutter(),
    cm.autocompletion({ override: [(context) => latest.current.complete?.(context) ?? null], icons: false }),
    cm.StreamLanguage.define(mode),
    cm.syntaxHighlighting(cm.HighlightStyle.define(COLOURS(cm.tags))),
    cm.keymap.of([
      ...cm.closeBracketsKeymap, ...cm.defaultKeymap, ...cm.historyKeymap, ...cm.searchKeymap, ...cm.completionKeymap,
    ]),
    cm.placeholder('SELECT * FROM …'),
    cm.EditorView.contentAttributes.of({ 'aria-label': label }),
    cm.EditorView.lineWrapping,
    cm.EditorView.theme(STYLE),
    cm.EditorView.updateListener.of((update) => {
      if (update.docChanged) latest.current.input(update.state.doc.toString());
    }),
  ];
}

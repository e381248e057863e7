/** Rates, times and room over the last minutes, from /metrics, which is read every few seconds. */
import { Ago } from '../../components/ago.js';
import { Refused } from '../../components/notices.js';
import { Plot } from '../../components/plot.js';
import * as node from '../../node.js';
import { useQuery } from '../../state.js';
import { html, useEffect, useState } from '../../vendor/preact.js';
import { between, parse, read } from './metrics.js';

const EVERY_MS = 3_000;
const KEPT = 300;
const MEBIBYTE = 1024 * 1024;

/** What is read of the node's figures, the newest last, while the page is looked at. */
export function useFigures() {
  const [readings, keep] = useState([]);
  const asked = useQuery(async (signal) => {
    const answer = await node.request('GET', '/metrics', { raw: true, signal });
    return read(parse(await answer.text()), Date.now() / 1000);
  }, [], { every: EVERY_MS });
  useEffect(() => {
    if (asked.value) keep((before) => [...before.slice(1 - KEPT), asked.value]);
  }, [asked.value]);
  return { readings, asked };
}

const thousandths = (seconds) => (seconds === null ? null : seconds * 1000);

/** @param {{readings: object[], asked: object}} props of `useFigures` */
export function Figures({ readings, asked }) {
  const times = readings.map(({ at }) => at);
  const steps = readings.map((one, at) => (at ? between(readings[at - 1], one) : null));
  const of = (label, pick) => ({ label, values: steps.map((step) => (step ? pick(step) : null)) });
  const now = (label, pick) => ({ label, values: readings.map(pick) });
  return html`
    <section class="card stack" aria-labelledby="figures-title">
      <div class="head"><h2 id="figures-title">Figures</h2>
        <p class="soft">HTTP alone, of the last quarter of an hour at most, read every ${EVERY_MS / 1000} s while this page is looked at.${' '}
          <${Ago} at=${asked.at} /></p></div>
      ${asked.error && html`<${Refused} error=${asked.error} again=${asked.again} />`}
      <div class="columns plots">
        <${Plot} title="Responses" unit="/s" times=${times}
          series=${[of('all', (step) => step.requests), of('refused', (step) => step.refused)]} />
        <${Plot} title="Response time" unit="ms" times=${times} series=${[of('half', (step) => thousandths(step.p50)),
          of('95 %', (step) => thousandths(step.p95)), of('99 %', (step) => thousandths(step.p99))]} />
        <${Plot} title="Commits" unit="/s" times=${times} series=${[of('commits', (step) => step.commits)]} />
        <${Plot} title="Memory" unit="MiB" times=${times} series=${[now('resident', ({ memory }) => memory / MEBIBYTE)]} />
        <${Plot} title="Processor" unit="% of a core" times=${times} series=${[of('used', (step) => 100 * step.cpu)]} />
        <${Plot} title="Connections" times=${times} series=${[now('held', (one) => one.connections),
          now('requests running', (one) => one.running)]} />
      </div>
    </section>`;
}

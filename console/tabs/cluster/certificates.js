/** Certificates: this node's own, those that are trusted, those that were revoked. */
import { Moment } from '../../components/ago.js';
import { Button } from '../../components/form.js';
import { Confirm } from '../../components/confirm.js';
import { Notice } from '../../components/notices.js';
import { Table } from '../../components/table.js';
import { Value } from '../../components/value.js';
import { revokeCertificate } from '../../statements/cluster.js';
import { html, useState } from '../../vendor/preact.js';
import { daysUntil, Expiry } from '../node/sizes.js';

const TYPED = 8;
const SOON_DAYS = 14;

const finger = { name: 'certificate', title: 'Fingerprint', value: (one) => one.certificate, width: '68ch',
  cell: (one) => html`<code>${one.certificate}</code>` };

const trusted = (revoke, may) => [
  { name: 'replica', title: 'Row', width: '16ch', value: (one) => one.replica, cell: (one) => html`<bdi>${one.replica}</bdi>` },
  { name: 'days', title: 'Valid until', width: '28ch', value: (one) => one.days_left, cell: (one) => (one.expires === null
    ? html`<span class="soft">not used yet</span>` : html`<${Expiry} at=${one.expires.text} />`) },
  ...(may ? [{ name: 'revoke', title: 'Revoke', width: '12ch', cell: (one) => html`<${Button} look="danger"
    aria-label=${`Revoke ${one.certificate.slice(0, TYPED)}`} onClick=${() => revoke(one)}>Revoke<//>` }] : []),
  finger,
];

const REVOKED = [
  { name: 'since', title: 'Since', width: '26ch', value: (one) => one.since, cell: (one) => html`<${Moment} of=${one.since} />` },
  { name: 'reason', title: 'Reason', value: (one) => one.reason, text: (one) => one.reason ?? '',
    cell: (one) => (one.reason === null ? null : html`<${Value} of=${one.reason} name="Reason" />`) },
  finger,
];

/** @param {object} props `self` (INFO FOR NODE), `cluster` (INFO FOR CLUSTER), `may` (one may be revoked here), `again` */
export function Certificates({ self, cluster, may, again }) {
  const [revoking, revoke] = useState(null);
  const own = self.surfaces.filter(({ tls }) => tls);
  const soon = [...own.map(({ certificate_expires: at }) => daysUntil(at.text)),
    ...cluster.trusted.map(({ days_left: days }) => days).filter((days) => days !== null)].filter((days) => days < SOON_DAYS);
  return html`
    <section class="card stack" aria-labelledby="certificates-title">
      <h2 id="certificates-title">Certificates</h2>
      ${soon.length > 0 && html`<${Notice} look="warning" title="A certificate expires within 14 days">
        <p>The node renews its own certificate 30 days ahead, over its link to the leader, if it is attached. You renew a certificate that you gave it; SIGHUP
          reloads it.</p><//>`}
      <dl class="pairs">
        ${self.surfaces.map((one) => html`<dt>This node, ${one.surface}</dt>
          <dd>${one.tls ? html`<${Expiry} at=${one.certificate_expires.text} />` : html`<span class="soft">no TLS</span>`}</dd>`)}
      </dl>
      <h3>Trusted</h3>
      <${Table} label="Trusted certificates" columns=${trusted(revoke, may)} rows=${cluster.trusted} height="40vh"
        empty="No certificates in the rows" />
      <h3>Revoked</h3>
      <${Table} label="Revoked certificates" columns=${REVOKED} rows=${cluster.revoked} height="40vh" empty="None." />
      ${revoking && html`
        <${Confirm} title="Revoke a certificate" name=${revoking.certificate.slice(0, TYPED)} called="first eight digits"
          statement=${revokeCertificate(revoking.certificate)} act="Revoke" onDone=${again} onClose=${() => revoke(null)}>
          <p>Of the row <bdi>${revoking.replica}</bdi>: <code>${revoking.certificate}</code>. The links of its node end at once. If the row has
            another certificate, that is no longer trusted either. A revocation is final: no row can be declared with this certificate again.</p>
        <//>`}
    </section>`;
}

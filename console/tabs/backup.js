/** Backup: taking backups, what is in the folder, making places anew from a script. */
import { Head } from '../components/head.js';
import { Answer, Empty } from '../components/notices.js';
import * as node from '../node.js';
import { useQuery } from '../state.js';
import { info } from '../statements.js';
import { html, useState } from '../vendor/preact.js';
import { Folder } from './backup/folder.js';
import { Last } from './backup/last.js';
import { Running } from './backup/running.js';
import { Take } from './backup/take.js';

/** The files of the node's backup folder; null: it was started without one. */
async function listed(signal) {
  try {
    return await node.run(info.backups(), { signal });
  } catch (error) {
    const isWithout = error.code === 'NoBackupFolder' && error.detail.path === undefined; // else it can't be used
    if (isWithout) return null;
    throw error;
  }
}

function Backup({ tab, place }) {
  const [turn, count] = useState(0);
  const [busy, work] = useState(false);
  const folder = useQuery(listed, []);
  const changed = () => {
    folder.again();
    count((before) => before + 1);
  };
  return html`
    <${Head} tab=${tab} asked=${folder} />
    <${Running} busy=${busy} onEnd=${changed} />
    <div class="backup">
      <${Take} place=${place} files=${folder.value} onBusy=${work} onDone=${changed} />
      <section class="part">
        <h2>The backup folder</h2>
        <${Answer} asked=${folder} what="the backup folder">
          ${(files) => (files === null ? html`<${Without} />`
            : html`<${Folder} files=${files} onBusy=${work} onDone=${changed} />`)}
        <//>
      </section>
    </div>
    <${Last} turn=${turn} />`;
}

const Without = () => html`
  <${Empty} title="This node has no backup folder">
    <p>Backups go to this computer. To keep them on the node's machine, start the node with
      <code>--backup-dir</code> and a folder.</p><//>`;

export const view = Backup;

package storeclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// partsMost are the parts of a backup that are held; a part has at most 1 MiB. Past them nothing is read.
const partsMost = 8

// BackupOption configures [Client.Backup] and [Client.BackupFile].
type BackupOption func(*backupOptions)

type backupOptions struct {
	ns, db, reason string
	progress       func(done, total int64)
}

// Of limits the backup to a namespace, or with a db to one database.
func Of(ns, db string) BackupOption { return func(o *backupOptions) { o.ns, o.db = ns, db } }

// Progress calls a function after each part with the bytes written and the bytes in total.
func Progress(call func(done, total int64)) BackupOption {
	return func(o *backupOptions) { o.progress = call }
}

// BackupReason is kept with the statement in the statement log.
func BackupReason(reason string) BackupOption { return func(o *backupOptions) { o.reason = reason } }

// Backup describes a snapshot that was taken.
type Backup struct {
	Bytes   int64
	Form    string // snapshot
	Records int64  // records of tables
	Version string // version of the node
}

// parts are those of one snapshot, as they come.
type parts struct {
	conn *connection
	come chan Object
	end  chan reply
	over *reply
}

func (p *parts) told(body Object, _ int) {
	p.conn.stalled.Store(true)
	select {
	case p.come <- body:
	case <-p.conn.done:
	}
	p.conn.stalled.Store(false)
}

func (p *parts) ended(end reply) { p.end <- end }

// next returns the next part; nil: all that came is out, and over is there.
func (p *parts) next() Object {
	if p.over == nil {
		select {
		case part := <-p.come:
			return part
		case end := <-p.end:
			p.over = &end
		}
	}
	select {
	case part := <-p.come: // it came before the end
		return part
	default:
		return nil
	}
}

// Backup writes a snapshot of the node to w while the node serves. It uses a connection of its own, no
// faster than w takes the data. The snapshot is complete only if the error is nil.
func (c *Client) Backup(ctx context.Context, w io.Writer, opts ...BackupOption) (Backup, error) {
	o := gather(opts)
	script, err := backupStatement(o)
	if err != nil {
		return Backup{}, err
	}
	conn, over, err := c.nodes.own(ctx)
	if err != nil {
		return Backup{}, err
	}
	defer over()
	defer context.AfterFunc(ctx, func() { conn.end(ctx.Err()) })()
	if err := conn.needs(minorOfStreams, "streams"); err != nil {
		return Backup{}, err
	}
	body := []field{{"script", script}, {"stream", true}}
	if o.reason != "" {
		body = append(body, field{"reason", o.reason})
	}
	coming := &parts{conn: conn, come: make(chan Object, partsMost), end: make(chan reply, 1)}
	if err := conn.begin(ctx, request{kind: kindRun, body: body}, &call{sink: coming}); err != nil {
		return Backup{}, err
	}
	found, err := coming.write(w, o.progress)
	if err != nil && ctx.Err() != nil {
		err = ctx.Err()
	}
	return found, err
}

func backupStatement(o backupOptions) (string, error) {
	switch {
	case o.ns == "" && o.db == "":
		return "BACKUP", nil
	case o.db == "":
		ns, err := QuoteName(o.ns)
		return "BACKUP OF NAMESPACE " + ns, err
	}
	ns, err := QuoteName(o.ns)
	db, other := QuoteName(o.db)
	return "BACKUP OF " + ns + "." + db, errors.Join(err, other)
}

func (p *parts) write(w io.Writer, progress func(done, total int64)) (Backup, error) {
	var done, total int64
	for part := p.next(); part != nil; part = p.next() {
		data, isData := part["bytes"].([]byte)
		upTo, _ := part["done"].(int64)
		of, _ := part["total"].(int64)
		done += int64(len(data))
		if !isData || upTo != done || done > of {
			return Backup{}, broken("a part of the snapshot is missing")
		}
		total = of
		if _, err := w.Write(data); err != nil {
			return Backup{}, err
		}
		if progress != nil {
			progress(done, total)
		}
	}
	end := p.over
	if end.err != nil {
		if errors.Is(end.err, errNotSent) {
			return Backup{}, &failure{kind: ErrUnreachable, said: "the connection ended before anything was sent"}
		}
		return Backup{}, end.err
	}
	answer, _ := end.value.(*Answer)
	if answer == nil || done == 0 || done != total {
		return Backup{}, broken("the snapshot ended before its last part")
	}
	var found Backup
	if err := answer.Decode(&found); err != nil {
		return Backup{}, broken("the node did not say what the snapshot holds: %v", err)
	}
	found.Bytes = done
	return found, nil
}

// BackupFile writes a snapshot to a new local file. The file gets its name once it is complete and
// synced; an existing file is not replaced but refused with [fs.ErrExist].
func (c *Client) BackupFile(ctx context.Context, path string, opts ...BackupOption) (found Backup, err error) {
	if _, err := os.Lstat(path); err == nil {
		return Backup{}, &fs.PathError{Op: "backup", Path: path, Err: fs.ErrExist}
	}
	folder, name := filepath.Split(path)
	if folder == "" {
		folder = "."
	}
	file, err := os.CreateTemp(folder, name+".*.partial")
	if err != nil {
		return Backup{}, err
	}
	defer os.Remove(file.Name()) // it has another name by then, or is not to be left
	defer file.Close()
	if found, err = c.Backup(ctx, file, opts...); err != nil {
		return Backup{}, err
	}
	if err := file.Sync(); err != nil {
		return Backup{}, err
	}
	if err := file.Close(); err != nil {
		return Backup{}, err
	}
	if err := os.Link(file.Name(), path); err != nil { // a link replaces nothing
		return Backup{}, fmt.Errorf("storeclient: the backup could not be given its name: %w", err)
	}
	return found, syncFolder(folder)
}

func syncFolder(path string) error {
	folder, err := os.Open(path)
	if err != nil {
		return err
	}
	defer folder.Close()
	return folder.Sync()
}

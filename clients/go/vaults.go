package storeclient

import (
	"context"
	"errors"
	"time"
)

// Seal opens and closes the vaults that have no passphrase of their own. Passphrases travel in messages
// of their own and are never statement text.
type Seal struct {
	client *Client
	place  []field
	err    error
}

// StoreSeal returns the seal of the store.
func (c *Client) StoreSeal() *Seal { return &Seal{client: c} }

func (s *Seal) do(ctx context.Context, op string, fields ...field) (Object, error) {
	if s.err != nil {
		return nil, s.err
	}
	body := append(append([]field{{"op", op}}, s.place...), fields...)
	return s.client.change(ctx, request{kind: kindVault, body: body})
}

// Unseal opens the vaults and returns the time at which they close. Use does not extend it.
func (s *Seal) Unseal(ctx context.Context, passphrase string) (time.Time, error) {
	found, err := s.do(ctx, "unseal", field{"passphrase", passphrase})
	if err != nil {
		return time.Time{}, err
	}
	return needed[time.Time](found, "until")
}

// Seal closes the vaults.
func (s *Seal) Seal(ctx context.Context) error {
	_, err := s.do(ctx, "seal")
	return err
}

// ChangePassphrase changes the passphrase and returns the number of keys that were wrapped again. An old
// of "" sets the first passphrase.
func (s *Seal) ChangePassphrase(ctx context.Context, old, passphrase string) (int, error) {
	return s.change(ctx, old, passphrase, false)
}

// Rekey changes the passphrase after a leak: it replaces all keys and encrypts every value again.
func (s *Seal) Rekey(ctx context.Context, old, passphrase string) (int, error) {
	return s.change(ctx, old, passphrase, true)
}

func (s *Seal) change(ctx context.Context, old, passphrase string, rekey bool) (int, error) {
	fields := []field{{"new", passphrase}, {"rekey", rekey}}
	if old != "" {
		fields = append(fields, field{"old", old})
	}
	found, err := s.do(ctx, "passphrase", fields...)
	if err != nil {
		return 0, err
	}
	rewrapped, err := needed[int64](found, "rewrapped")
	return int(rewrapped), err
}

// Vault is a handle on a vault: secrets that are open only for a while, each access to which is audited.
// The methods of its [Seal] are for a vault with a passphrase of its own; other vaults are opened with
// [Client.StoreSeal].
type Vault struct {
	Seal
	db     *Database
	quoted string
}

// Vault returns a handle on a vault. It sends nothing.
func (d *Database) Vault(name string) *Vault {
	quoted, err := QuoteName(name)
	place := []field{{"ns", d.ns}, {"db", d.db}, {"vault", name}}
	return &Vault{Seal{d.client, place, errors.Join(d.err, err)}, d, quoted}
}

// VaultOption configures an operation on a record of a [Vault].
type VaultOption func(*vaultOptions)

type vaultOptions struct {
	clause  string
	params  Params
	reason  string
	version *int64
}

// IfAbsent writes only if the record does not exist.
func IfAbsent() VaultOption { return func(o *vaultOptions) { o.clause = " IF ABSENT" } }

// ExpectVersion writes only if the record's version is version. 0 is [IfAbsent].
func ExpectVersion(version int64) VaultOption {
	return func(o *vaultOptions) { o.clause, o.params = " EXPECT VERSION $expect", Params{"expect": version} }
}

// OfVersion reveals that version of a record instead of the newest.
func OfVersion(version int64) VaultOption { return func(o *vaultOptions) { o.version = &version } }

// For sets the reason in the vault's audit trail.
func For(reason string) VaultOption { return func(o *vaultOptions) { o.reason = reason } }

func (v *Vault) value(ctx context.Context, text string, params Params, reason string) (any, error) {
	if v.err != nil {
		return nil, v.err
	}
	answer, err := v.db.run(ctx, text, params, runOptions{reason: reason})
	if err != nil {
		return nil, err
	}
	return answer.Value(), nil
}

func valueOf[T any](ctx context.Context, v *Vault, text string, params Params, reason string) (T, error) {
	found, err := v.value(ctx, text, params, reason)
	if err != nil {
		var none T
		return none, err
	}
	return as[T](found)
}

// Written is the result of [Vault.Write].
type Written struct {
	Written bool  // false if the condition did not hold
	Version int64 // current version of the record; 0 if there is none
}

// Write writes the next version of a record.
func (v *Vault) Write(ctx context.Context, id string, value any, opts ...VaultOption) (Written, error) {
	o := gather(opts)
	params := Params{"id": id, "value": value}
	for name, one := range o.params {
		params[name] = one
	}
	return valueOf[Written](ctx, v, "WRITE $id IN VAULT "+v.quoted+" VALUE $value"+o.clause, params, o.reason)
}

// Revealed is the value of a record of a vault. Its printed form does not show the value.
type Revealed struct {
	ID      string
	Value   any
	Version int64
	At      time.Time // time of that version
}

// String returns the id, without the value.
func (r Revealed) String() string { return "revealed " + r.ID }

// GoString returns the same as [Revealed.String].
func (r Revealed) GoString() string { return r.String() }

// Reveal returns the value of a record. The access is audited before it is answered.
func (v *Vault) Reveal(ctx context.Context, id string, opts ...VaultOption) (Revealed, error) {
	o := gather(opts)
	text, params := "REVEAL $id FROM VAULT "+v.quoted, Params{"id": id}
	if o.version != nil {
		text += " VERSION $version"
		params["version"] = *o.version
	}
	return valueOf[Revealed](ctx, v, text, params, o.reason)
}

// List returns up to limit ids with a prefix that sort after an id, in the order of their bytes. limit
// is at most 1000.
func (v *Vault) List(ctx context.Context, prefix, after string, limit int) ([]string, error) {
	found, err := valueOf[Object](ctx, v, "LIST FROM VAULT "+v.quoted+" PREFIX $prefix AFTER $after LIMIT $limit",
		Params{"prefix": prefix, "after": after, "limit": limit}, "")
	if err != nil {
		return nil, err
	}
	return as[[]string](found["ids"])
}

// Erase erases a record with all of its versions, and reports whether it existed.
func (v *Vault) Erase(ctx context.Context, id string, opts ...VaultOption) (bool, error) {
	found, err := valueOf[Object](ctx, v, "ERASE $id FROM VAULT "+v.quoted, Params{"id": id}, gather(opts).reason)
	if err != nil {
		return false, err
	}
	return needed[bool](found, "erased")
}

// Info returns the answer of INFO FOR VAULT.
func (v *Vault) Info(ctx context.Context) (Object, error) {
	return valueOf[Object](ctx, v, "INFO FOR VAULT "+v.quoted, nil, "")
}

// Audit returns entries of the vault's audit trail, newest first. before is the sequence to continue
// behind; 0 means the newest.
func (v *Vault) Audit(ctx context.Context, before int64, limit int) ([]Object, error) {
	params, page := Params{"limit": limit}, ""
	if before > 0 {
		params["before"], page = before, " BEFORE $before"
	}
	return valueOf[[]Object](ctx, v, "INFO FOR AUDIT OF VAULT "+v.quoted+page+" LIMIT $limit", params, "")
}

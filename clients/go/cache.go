package storeclient

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"math"
	"sync"
	"time"
)

const (
	// Forever is the [Cache.TTL] of a key that does not expire.
	Forever = time.Duration(math.MaxInt64)
	// keysMost are the keys in one listing.
	keysMost = 1000
	// renewals are how often a lease that renews itself does so within its time.
	renewals = 3
)

// Cache is a handle on the keys of one cache space. Each call is one message; concurrent calls travel
// together and share a commit.
type Cache struct {
	client *Client
	place  []field
	err    error
}

// Cache returns a handle on the keys of a cache space. It sends nothing.
func (d *Database) Cache(space string) *Cache {
	place := []field{{"ns", d.ns}, {"db", d.db}, {"space", space}}
	return &Cache{d.client, place, errors.Join(d.err, checkNames(space))}
}

func (c *Cache) request(op string, fields []field) request {
	body := make([]field, 0, 4+len(fields))
	body = append(append(append(body, field{"op", op}), c.place...), fields...)
	asked := request{kind: kindKV, body: body}
	if timeout := c.client.options.timeout; timeout != 0 {
		asked.timeout = timeout + c.client.options.pulse.Grace
	}
	return asked
}

func (c *Cache) read(ctx context.Context, op string, fields ...field) (Object, error) {
	if c.err != nil {
		return nil, c.err
	}
	found, err := c.client.ask(ctx, c.request(op, fields), asking{repeatable: true})
	if err != nil {
		return nil, err
	}
	return found.(Object), nil
}

func (c *Cache) write(ctx context.Context, op string, fields ...field) (Object, error) {
	if c.err != nil {
		return nil, c.err
	}
	for _, one := range fields {
		if ttl, isTime := one.value.(time.Duration); isTime && one.name == "expire" && ttl <= 0 {
			return nil, &ValueError{"ttl", fmt.Sprintf("an expiry is longer than nothing, not %v", ttl)}
		}
	}
	return c.client.change(ctx, c.request(op, fields))
}

func (c *Cache) tells(ctx context.Context, what, op string, fields ...field) (bool, error) {
	found, err := c.write(ctx, op, fields...)
	if err != nil {
		return false, err
	}
	return needed[bool](found, what)
}

// SetOption configures [Cache.Set], [Cache.SetIfAbsent], [Cache.SetIfPresent] and [Cache.CompareAndSet].
type SetOption func(*setOptions)

type setOptions struct {
	ttl     *time.Duration
	keepTTL bool
}

// TTL sets an expiry, longer than nothing. Without it a key does not expire, or
// gets the default of its space.
func TTL(ttl time.Duration) SetOption { return func(o *setOptions) { o.ttl = &ttl } }

// KeepTTL keeps the key's expiry, which [Cache.Set] clears otherwise.
func KeepTTL() SetOption { return func(o *setOptions) { o.keepTTL = true } }

func (o setOptions) fields(fields ...field) []field {
	if o.ttl != nil {
		fields = append(fields, field{"expire", *o.ttl})
	}
	if o.keepTTL {
		fields = append(fields, field{"keep", true})
	}
	return fields
}

// Get returns the value of a key. ok is false if there is none.
func (c *Cache) Get(ctx context.Context, key string) (value any, ok bool, err error) {
	found, err := c.read(ctx, "get", field{"key", key})
	if err != nil {
		return nil, false, err
	}
	value, ok = found["value"]
	return value, ok, nil
}

// Get returns the value of a key, decoded as by [Decode]. ok is false if there is none.
func Get[T any](ctx context.Context, from *Cache, key string) (value T, ok bool, err error) {
	found, ok, err := from.Get(ctx, key)
	if err != nil || !ok {
		return value, false, err
	}
	value, err = as[T](found)
	return value, err == nil, err
}

// Set sets a key.
func (c *Cache) Set(ctx context.Context, key string, value any, opts ...SetOption) error {
	_, err := c.write(ctx, "set", gather(opts).fields(field{"key", key}, field{"value", value})...)
	return err
}

// SetIfAbsent sets a key that does not exist, and reports whether it was set.
func (c *Cache) SetIfAbsent(ctx context.Context, key string, value any, opts ...SetOption) (bool, error) {
	fields := gather(opts).fields(field{"key", key}, field{"value", value}, field{"if", "absent"})
	return c.tells(ctx, "written", "set", fields...)
}

// SetIfPresent sets a key that exists, and reports whether it was set.
func (c *Cache) SetIfPresent(ctx context.Context, key string, value any, opts ...SetOption) (bool, error) {
	fields := gather(opts).fields(field{"key", key}, field{"value", value}, field{"if", "present"})
	return c.tells(ctx, "written", "set", fields...)
}

// CompareAndSet sets a key that holds expect, in type and value, and reports whether it was set. An
// expect of [None] means that the key does not exist.
func (c *Cache) CompareAndSet(ctx context.Context, key string, expect, value any, opts ...SetOption) (bool, error) {
	fields := gather(opts).fields(field{"key", key}, field{"expect", expect}, field{"value", value})
	return c.tells(ctx, "written", "swap", fields...)
}

// Delete deletes a key, and reports whether it existed.
func (c *Cache) Delete(ctx context.Context, key string) (bool, error) {
	return c.tells(ctx, "deleted", "delete", field{"key", key})
}

// Incr adds to a counter, which starts at 0, and returns the new value.
func (c *Cache) Incr(ctx context.Context, key string, by int64) (int64, error) {
	found, err := c.write(ctx, "incr", field{"key", key}, field{"by", by})
	if err != nil {
		return 0, err
	}
	return needed[int64](found, "value")
}

// TTL returns the time to live of a key, or [Forever]. ok is false if there is no such key.
func (c *Cache) TTL(ctx context.Context, key string) (left time.Duration, ok bool, err error) {
	found, err := c.read(ctx, "get", field{"key", key})
	if _, ok = found["value"]; err != nil || !ok {
		return 0, false, err
	}
	if ttl, expires := found["ttl"].(Duration); expires {
		return ttl.Std(), true, nil
	}
	return Forever, true, nil
}

// Expire sets the expiry of a key, and reports whether it exists.
func (c *Cache) Expire(ctx context.Context, key string, ttl time.Duration) (bool, error) {
	return c.tells(ctx, "found", "expire", field{"key", key}, field{"expire", ttl})
}

// Persist removes the expiry of a key, and reports whether it exists.
func (c *Cache) Persist(ctx context.Context, key string) (bool, error) {
	return c.tells(ctx, "found", "persist", field{"key", key})
}

// Keys returns up to limit keys with a prefix that sort after a key, in the order of their bytes. limit
// is at most 1000.
func (c *Cache) Keys(ctx context.Context, prefix, after string, limit int) ([]string, error) {
	found, err := c.read(ctx, "keys", field{"prefix", prefix}, field{"after", after}, field{"limit", limit})
	if err != nil {
		return nil, err
	}
	return as[[]string](found["keys"])
}

// AllKeys iterates over the keys with a prefix in the order of their bytes. An error ends the iteration.
func (c *Cache) AllKeys(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		after := ""
		for {
			page, err := c.Keys(ctx, prefix, after, keysMost)
			if err != nil {
				yield("", err)
				return
			}
			for _, key := range page {
				if !yield(key, nil) {
					return
				}
				after = key
			}
			if len(page) < keysMost {
				return
			}
		}
	}
}

// GetOrSet returns the value of a key, decoded as by [Decode]. If there is none it calls load and stores
// the result. Concurrent callers each call load; the first to store wins, and all return its value. ttl
// is as of [TTL]; 0 means the default of the space.
func GetOrSet[T any](ctx context.Context, in *Cache, key string, ttl time.Duration, load func(context.Context) (T, error)) (T, error) {
	found, ok, err := Get[T](ctx, in, key)
	if err != nil || ok {
		return found, err
	}
	made, err := load(ctx)
	if err != nil {
		return made, err
	}
	var opts []SetOption
	if ttl != 0 {
		opts = append(opts, TTL(ttl))
	}
	for {
		stored, err := in.SetIfAbsent(ctx, key, made, opts...)
		if err != nil || stored {
			return made, err
		}
		if found, ok, err = Get[T](ctx, in, key); err != nil || ok {
			return found, err
		}
	}
}

// --- locks ---------------------------------------------------------------------------------------

// LockOption configures [Cache.Lock].
type LockOption func(*lockOptions)

type lockOptions struct {
	holder string
	renew  bool
}

// Holder names the holder of a lock. The same holder extends its lease by locking again. The default is
// a random name.
func Holder(name string) LockOption { return func(o *lockOptions) { o.holder = name } }

// Renew extends the lease periodically until it is released or lost.
func Renew() LockOption { return func(o *lockOptions) { o.renew = true } }

// Lease is a lock that is held until it is released or expires. It is a lease, not a mutex: pass Fence
// to the resource that it protects. A lease is identified by its fence: once it is lost, neither Extend
// nor Release touches the lock of a later holder.
type Lease struct {
	cache  *Cache
	key    string
	holder string
	ttl    time.Duration
	fence  int64
	lost   chan struct{} // closed once it is known to be over
	stop   context.CancelFunc
	work   sync.WaitGroup

	mu    sync.Mutex
	until time.Time
	over  bool
}

// Lock acquires a lease on a key. ok is false if another holder has it.
func (c *Cache) Lock(ctx context.Context, key string, ttl time.Duration, opts ...LockOption) (lease *Lease, ok bool, err error) {
	o := gather(opts)
	if o.holder == "" {
		var name [16]byte
		_, _ = rand.Read(name[:]) // it never fails
		o.holder = hex.EncodeToString(name[:])
	}
	found, err := c.write(ctx, "lock", field{"key", key}, field{"holder", o.holder}, field{"expire", ttl})
	if err != nil {
		return nil, false, err
	}
	if held, err := needed[bool](found, "held"); err != nil || !held {
		return nil, false, err
	}
	lease = &Lease{cache: c, key: key, holder: o.holder, ttl: ttl, lost: make(chan struct{}), stop: func() {}}
	if lease.fence, err = needed[int64](found, "fence"); err != nil {
		return nil, false, err
	}
	if lease.until, err = needed[time.Time](found, "until"); err != nil {
		return nil, false, err
	}
	if o.renew {
		var renewing context.Context
		renewing, lease.stop = context.WithCancel(c.client.nodes.ctx)
		lease.work.Add(1)
		go lease.renew(renewing)
	}
	return lease, true, nil
}

// Fence returns the fencing token: it grows with each holder of the key.
func (l *Lease) Fence() int64 { return l.fence }

// Until returns the time at which the lease ends, by the node's clock.
func (l *Lease) Until() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.until
}

// Lost returns a channel that is closed once the lease is known to be over: it was released, or an
// extension found that it had expired.
func (l *Lease) Lost() <-chan struct{} { return l.lost }

func (l *Lease) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.over {
		l.over = true
		close(l.lost)
	}
}

// Extend makes the lease last ttl from now, and reports whether it is held. A ttl of 0 means that of
// [Cache.Lock]. An expired lease is not acquired again.
func (l *Lease) Extend(ctx context.Context, ttl time.Duration) (bool, error) {
	if isDone(l.lost) {
		return false, nil
	}
	if ttl == 0 {
		ttl = l.ttl
	}
	found, err := l.cache.write(ctx, "lock",
		field{"key", l.key}, field{"holder", l.holder}, field{"fence", l.fence}, field{"expire", ttl})
	if err != nil {
		return false, err
	}
	held, err := needed[bool](found, "held")
	if err != nil {
		return false, err
	}
	if !held {
		l.end()
		return false, nil
	}
	until, err := needed[time.Time](found, "until")
	l.mu.Lock()
	l.until = until
	l.mu.Unlock()
	return true, err
}

func (l *Lease) renew(ctx context.Context) {
	defer l.work.Done()
	for {
		select {
		case <-time.After(l.ttl / renewals):
		case <-ctx.Done():
			return
		}
		held, err := l.Extend(ctx, 0)
		if errors.Is(err, ErrClosed) || (err == nil && !held) {
			return
		} // else the next one may come in time
	}
}

// Release releases the lease, and reports whether it was still held.
func (l *Lease) Release(ctx context.Context) (bool, error) {
	l.stop()
	l.work.Wait()
	if isDone(l.lost) {
		return false, nil
	}
	found, err := l.cache.write(ctx, "unlock", field{"key", l.key}, field{"holder", l.holder}, field{"fence", l.fence})
	if err != nil {
		return false, err
	}
	l.end() // nothing of it is left to be extended, whatever the answer
	return needed[bool](found, "released")
}

package storeclient

import (
	"context"
	"errors"
	"io"
	"iter"
	"slices"
	"sync"
	"time"
)

const (
	// takeWait is how long one TAKE of a consumer waits at the node before it asks again.
	takeWait = time.Minute
	// takeMost are the messages of one TAKE.
	takeMost = 1000
	// receiptsMost are those in one request: a node does so many at once, more in turns.
	receiptsMost = 250
	// extensions are how often a consumer that extends does so within a deadline.
	extensions = 3
	// leastPause is between two extensions, however short the group's deadline is.
	leastPause = 50 * time.Millisecond

	receiptName = "storeclient_receipt"
	staleText   = "storeclient: the receipt is stale"
	givenBack   = "given back: its consumer stopped before it was worked on"
)

// Group is a handle on a consumer group: its members share the messages of a topic. A message is
// delivered to one member, which has until the deadline to acknowledge it; otherwise it is delivered
// again, so that work is done at least once. [Group.Done] writes the effect of a message and its
// acknowledgement in one transaction: exactly once.
type Group struct {
	topic  *Topic
	name   string
	quoted string
	err    error
}

// Group returns a handle on a group of the topic. It sends nothing.
func (t *Topic) Group(name string) *Group {
	quoted, err := QuoteName(name)
	return &Group{t, name, quoted, errors.Join(t.err, err)}
}

// Settled is the result of acknowledging, returning, extending or giving up messages by their receipts.
type Settled struct {
	// Done is the number of messages that were settled.
	Done int
	// Stale is the number of receipts that came too late: the message was delivered again, settled
	// before or trimmed, or the group was moved. StaleReceipts names them.
	Stale         int
	StaleReceipts []string
}

// Delivery is a message that was delivered to a member of a group and is not settled yet.
type Delivery struct {
	Message
	Receipt  string
	Attempt  int       // number of deliveries, this one included
	Deadline time.Time // ack deadline, by the node's log time
	Member   string
	owner    owner
}

// owner settles deliveries: one by one, or with others.
type owner interface {
	ack(context.Context, *Delivery) (bool, error)
	done(context.Context, *Delivery, string, Params) (*Answer, bool, error)
	settle(context.Context, *Delivery, string, string, ...field) (bool, error)
}

// Ack acknowledges the message. The acknowledgement is durable when Ack returns; false means that it
// came too late, and another member may have the message. Concurrent acknowledgements of a [Consumer]
// travel together, and are sent again after an outage. [ErrOutcomeUnknown] means that the connection
// broke and the message is settled: by this acknowledgement, or by its deadline.
func (d *Delivery) Ack(ctx context.Context) (bool, error) { return d.owner.ack(ctx, d) }

// Done runs a script and acknowledges the message in one transaction; see [Group.Done].
func (d *Delivery) Done(ctx context.Context, script string, params Params) (answer *Answer, ok bool, err error) {
	return d.owner.done(ctx, d, script, params)
}

// SettleOption configures [Delivery.Nack] and [Delivery.GiveUp], and those of a [Group].
type SettleOption func(*settleOptions)

type settleOptions struct{ fields []field }

// RetryAfter sets the delay of the next delivery, in place of the group's backoff.
func RetryAfter(delay time.Duration) SettleOption {
	return func(o *settleOptions) { o.fields = append(o.fields, field{"delay", delay}) }
}

// Because sets the error that is kept with the message, and in the headers of its dead letter.
func Because(text string) SettleOption {
	return func(o *settleOptions) { o.fields = append(o.fields, field{"error", text}) }
}

// Nack returns the message to the group. False means that it came too late.
func (d *Delivery) Nack(ctx context.Context, opts ...SettleOption) (bool, error) {
	return d.owner.settle(ctx, d, "nack", "nacked", gather(opts).fields...)
}

// Extend sets the ack deadline to that long from now. False means that it came too late.
func (d *Delivery) Extend(ctx context.Context, by time.Duration) (bool, error) {
	return d.owner.settle(ctx, d, "extend", "extended", field{"by", by})
}

// GiveUp makes the message a dead letter. False means that it came too late.
func (d *Delivery) GiveUp(ctx context.Context, opts ...SettleOption) (bool, error) {
	return d.owner.settle(ctx, d, "give_up", "given_up", gather(opts).fields...)
}

// TakeOption configures [Group.Take] and [Group.Messages].
type TakeOption func(*takeOptions)

type takeOptions struct {
	member   string
	wait     time.Duration
	prefetch int
	extend   bool
}

// Member names the consumer in INFO FOR GROUP.
func Member(name string) TakeOption { return func(o *takeOptions) { o.member = name } }

// Wait makes [Group.Take] wait for the first message, at most five minutes.
func Wait(wait time.Duration) TakeOption { return func(o *takeOptions) { o.wait = wait } }

// Prefetch sets how many messages a consumer takes ahead, 32 by default. The ack deadline of a message
// starts when it is taken.
func Prefetch(count int) TakeOption { return func(o *takeOptions) { o.prefetch = count } }

// Extending makes a consumer extend the ack deadlines of its messages until they are settled, for work
// that takes longer than the group's deadline.
func Extending() TakeOption { return func(o *takeOptions) { o.extend = true } }

// Take returns up to count messages, 1 to 1000.
func (g *Group) Take(ctx context.Context, count int, opts ...TakeOption) ([]*Delivery, error) {
	o := gather(opts)
	return g.take(ctx, count, o.member, o.wait, nil, single{g})
}

func (g *Group) take(ctx context.Context, count int, member string, wait time.Duration, stop <-chan struct{}, by owner) ([]*Delivery, error) {
	if g.err != nil {
		return nil, g.err
	}
	fields := []field{{"group", g.name}, {"count", count}}
	if member != "" {
		fields = append(fields, field{"member", member})
	}
	if wait > 0 {
		fields = append(fields, field{"wait", wait})
	}
	found, err := g.topic.ask(ctx, "take", wait, stop, fields...)
	if err != nil {
		return nil, err
	}
	messages, err := needed[[]any](found, "messages")
	if err != nil {
		return nil, err
	}
	taken := make([]*Delivery, len(messages))
	for n, one := range messages {
		taken[n] = &Delivery{owner: by}
		body, err := taken[n].read(one)
		if err != nil {
			return nil, err
		}
		var attempt int64
		var errs [4]error
		taken[n].Receipt, errs[0] = needed[string](body, "receipt")
		attempt, errs[1] = needed[int64](body, "attempt")
		taken[n].Deadline, errs[2] = needed[time.Time](body, "deadline")
		taken[n].Member, errs[3] = optional[string](body, "member")
		taken[n].Attempt = int(attempt)
		if err := errors.Join(errs[:]...); err != nil {
			return nil, err
		}
	}
	return taken, nil
}

func (g *Group) settle(ctx context.Context, op, done string, receipts []string, fields ...field) (Settled, error) {
	if g.err != nil {
		return Settled{}, g.err
	}
	if receipts == nil {
		receipts = []string{}
	}
	all := append([]field{{"group", g.name}, {"receipts", receipts}}, fields...)
	found, err := g.topic.ask(ctx, op, 0, nil, all...)
	if err != nil {
		return Settled{}, err
	}
	count, err := needed[int64](found, done)
	if err != nil {
		return Settled{}, err
	}
	stale, err := needed[int64](found, "stale")
	if err != nil {
		return Settled{}, err
	}
	which, err := as[[]string](found["stale_receipts"])
	return Settled{int(count), int(stale), which}, err
}

// Ack acknowledges messages by their receipts.
func (g *Group) Ack(ctx context.Context, receipts ...string) (Settled, error) {
	return g.settle(ctx, "ack", "acked", receipts)
}

// Nack returns messages to the group by their receipts.
func (g *Group) Nack(ctx context.Context, receipts []string, opts ...SettleOption) (Settled, error) {
	return g.settle(ctx, "nack", "nacked", receipts, gather(opts).fields...)
}

// Extend sets the ack deadlines of messages to that long from now.
func (g *Group) Extend(ctx context.Context, receipts []string, by time.Duration) (Settled, error) {
	return g.settle(ctx, "extend", "extended", receipts, field{"by", by})
}

// GiveUp makes messages dead letters.
func (g *Group) GiveUp(ctx context.Context, receipts []string, opts ...SettleOption) (Settled, error) {
	return g.settle(ctx, "give_up", "given_up", receipts, gather(opts).fields...)
}

// Done runs a script and acknowledges a message in one transaction: the message takes effect exactly
// once, however often it is delivered. The script is any statements but BEGIN, COMMIT and CANCEL. Done
// is sent again after a broken connection; a second run finds a stale receipt and changes nothing. ok is
// false then, and if another member has or has settled the message.
func (g *Group) Done(ctx context.Context, message *Delivery, script string, params Params) (answer *Answer, ok bool, err error) {
	return message.owner.done(ctx, message, script, params)
}

func (g *Group) done(ctx context.Context, message *Delivery, script string, params Params) (*Answer, bool, error) {
	if g.err != nil {
		return nil, false, g.err
	}
	given := Params{receiptName: message.Receipt}
	for name, value := range params {
		if name == receiptName {
			return nil, false, noValue("parameter %q is what Done names the receipt", receiptName)
		}
		given[name] = value
	}
	// On the line where the script begins, so that its lines keep their numbers.
	before := "BEGIN; LET $" + receiptName + "_ack = ACK " + g.topic.quoted + " AS " + g.quoted +
		" RECEIPTS [$" + receiptName + "]; IF $" + receiptName + "_ack.stale > 0 { THROW '" + staleText + "' }; "
	answer, err := g.topic.run(ctx, before+script+"\n;COMMIT", given, 0, true)
	if refusal := refusalOf(err); refusal != nil {
		if refusal.Code == Thrown && refusal.Detail["value"] == staleText {
			return nil, false, nil
		}
		if refusal.Statement > 0 {
			refusal.Statement = max(refusal.Statement-3, 1)
		}
		if refusal.Line == 1 {
			refusal.Column = max(refusal.Column-len(before), 1)
		}
	}
	if err != nil {
		return nil, false, err
	}
	answer.Results = within(answer.Results, 3)
	return answer, true, nil
}

// Info returns the answer of INFO FOR GROUP.
func (g *Group) Info(ctx context.Context) (Object, error) {
	if g.err != nil {
		return nil, g.err
	}
	answer, err := g.topic.run(ctx, "INFO FOR GROUP "+g.quoted+" ON "+g.topic.quoted, nil, 0, true)
	if err != nil {
		return nil, err
	}
	return as[Object](answer.Value())
}

// single settles what Take answered: each receipt by itself.
type single struct{ group *Group }

func (s single) ack(ctx context.Context, d *Delivery) (bool, error) {
	found, err := s.group.Ack(ctx, d.Receipt)
	return found.Done > 0, err
}

func (s single) done(ctx context.Context, d *Delivery, script string, params Params) (*Answer, bool, error) {
	return s.group.done(ctx, d, script, params)
}

func (s single) settle(ctx context.Context, d *Delivery, op, done string, fields ...field) (bool, error) {
	found, err := s.group.settle(ctx, op, done, []string{d.Receipt}, fields...)
	return found.Done > 0, err
}

// --- consumers -----------------------------------------------------------------------------------

// Consumer iterates over the messages of a group as they arrive. It prefetches, and survives broken
// connections and nodes that restart, are busy, are full or are read-only for a time: a message whose
// delivery was lost is delivered again after its deadline. Acknowledgements and extensions are retried
// likewise until the consumer is stopped. Any other error ends it, and so does a node that cannot be
// reached in the first place.
//
// [Consumer.Stop] returns prefetched messages to the group. That counts as an attempt of those messages,
// as each delivery does: the consumers of a group whose DELIVERIES is 1 should prefetch 1.
type Consumer struct {
	group    *Group
	single   single
	prefetch int
	member   string
	extend   bool
	stopping chan struct{}
	begin    sync.Once
	work     sync.WaitGroup

	mu      sync.Mutex
	ready   []*Delivery
	held    map[string]time.Time // given out and not settled, with until when each was extended by hand
	changed chan struct{}        // closed when something is there to see; nil: nobody looks
	room    chan struct{}        // likewise, when there is room for more
	failure error
	stopped bool
	taken   bool // a TAKE was answered: from then on a node that is away is waited for
	acks    []pendingAck
	acking  chan struct{} // closed when those under way are through; nil: none are
	stale   int
}

type pendingAck struct {
	receipt string
	told    chan ackOutcome
}

type ackOutcome struct {
	ok  bool
	err error
}

// Messages returns a consumer, which the caller stops. It takes nothing before its first message is
// asked for.
//
//	messages := group.Messages(storeclient.Prefetch(100))
//	defer messages.Stop(ctx)
//	for message, err := range messages.All(ctx) { … }
func (g *Group) Messages(opts ...TakeOption) *Consumer {
	o := gather(opts)
	if o.prefetch == 0 {
		o.prefetch = 32
	}
	return &Consumer{
		group: g, single: single{g}, prefetch: max(o.prefetch, 1), member: o.member, extend: o.extend,
		stopping: make(chan struct{}), held: map[string]time.Time{},
	}
}

// Stale returns the number of acknowledgements that came too late.
func (c *Consumer) Stale() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stale
}

// All iterates over messages until the consumer is stopped. An error ends the iteration.
func (c *Consumer) All(ctx context.Context) iter.Seq2[*Delivery, error] {
	return func(yield func(*Delivery, error) bool) {
		for {
			found, err := c.Next(ctx)
			if err == io.EOF || !yield(found, err) || err != nil {
				return
			}
		}
	}
}

// Next waits for the next message. It returns [io.EOF] once the consumer is stopped.
func (c *Consumer) Next(ctx context.Context) (*Delivery, error) {
	c.begin.Do(func() {
		c.start(c.takeAhead)
		if c.extend {
			c.start(c.keepExtending)
		}
	})
	for {
		if err := ctx.Err(); err != nil {
			return nil, err // else one that takes ahead would go on for as long as messages come
		}
		c.mu.Lock()
		switch {
		case c.stopped:
			c.mu.Unlock()
			return nil, io.EOF
		case len(c.ready) > 0:
			found := c.ready[0]
			c.ready = c.ready[1:]
			if c.extend {
				c.held[found.Receipt] = time.Time{}
			}
			announce(&c.room)
			c.mu.Unlock()
			return found, nil
		case c.failure != nil:
			defer c.mu.Unlock()
			return nil, c.failure
		}
		changed := expect(&c.changed)
		c.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func expect(news *chan struct{}) <-chan struct{} {
	if *news == nil {
		*news = make(chan struct{})
	}
	return *news
}

func announce(news *chan struct{}) {
	if *news != nil {
		close(*news)
		*news = nil
	}
}

func (c *Consumer) start(work func(context.Context) error) {
	c.work.Add(1)
	go func() {
		defer c.work.Done()
		if err := work(context.Background()); err != nil {
			c.mu.Lock()
			defer c.mu.Unlock()
			if c.failure == nil { // what comes behind it comes of it
				c.failure = err
			}
			announce(&c.changed)
		}
	}()
}

func (c *Consumer) takeAhead(ctx context.Context) error {
	pause := retryBackoff()
	for !isDone(c.stopping) {
		c.mu.Lock()
		missing := c.prefetch - len(c.ready)
		room := expect(&c.room)
		hasTaken := c.taken
		c.mu.Unlock()
		if missing < (c.prefetch+1)/2 { // few large requests rather than one for each message
			select {
			case <-room:
			case <-c.stopping:
			}
			continue
		}
		found, err := c.group.take(ctx, min(missing, takeMost), c.member, takeWait, c.stopping, c)
		refusal := refusalOf(err)
		switch {
		case err == nil:
		case refusal != nil && refusal.Code == Cancelled && isDone(c.stopping):
			return nil
		case (hasTaken || (refusal != nil && refusal.Retry)) && isOutage(err):
			if err := pause.wait(ctx, c.stopping); err != nil {
				return err
			}
			continue
		default:
			return err
		}
		pause.reset()
		c.mu.Lock()
		c.taken = true
		c.ready = append(c.ready, found...)
		announce(&c.changed)
		c.mu.Unlock()
	}
	return nil
}

func (c *Consumer) keepExtending(ctx context.Context) error {
	pause := retryBackoff()
	var deadline time.Duration
	for !isDone(c.stopping) {
		err := c.extendAll(ctx, &deadline)
		switch {
		case err == nil:
			pause.reset()
			select {
			case <-time.After(max(deadline/extensions, leastPause)):
			case <-c.stopping:
			case <-c.group.topic.db.client.nodes.ctx.Done(): // takeAhead is told that the client was closed
				return nil
			}
		case !isOutage(err): // takeAhead is told what ends both, and knows whether the node was there
			return err
		default:
			if err := pause.wait(ctx, c.stopping); err != nil {
				return err
			}
		}
	}
	return nil
}

// extendAll extends what is held, and lets go of what is not this consumer's any more: it was
// acknowledged in a script, or has lapsed in an outage, and comes again by itself. What was extended by
// hand for longer keeps that.
func (c *Consumer) extendAll(ctx context.Context, deadline *time.Duration) error {
	if *deadline == 0 {
		info, err := c.group.Info(ctx)
		if err != nil {
			return err
		}
		found, err := needed[Duration](info, "deadline")
		if err != nil {
			return err
		}
		*deadline = found.Std()
		return nil
	}
	until := time.Now().Add(*deadline)
	var receipts []string
	c.mu.Lock()
	for receipt, byHand := range c.held {
		if byHand.Before(until) {
			receipts = append(receipts, receipt)
		}
	}
	for _, one := range c.ready {
		receipts = append(receipts, one.Receipt)
	}
	c.mu.Unlock()
	for some := range slices.Chunk(receipts, receiptsMost) {
		settled, err := c.group.Extend(ctx, some, *deadline)
		if err != nil {
			return err
		}
		c.mu.Lock()
		c.ready = slices.DeleteFunc(c.ready, func(one *Delivery) bool {
			return slices.Contains(settled.StaleReceipts, one.Receipt)
		})
		for _, gone := range settled.StaleReceipts {
			delete(c.held, gone)
		}
		announce(&c.room)
		c.mu.Unlock()
	}
	return nil
}

// throughOutages calls until the node has answered. unsure: an attempt broke off, and may have been done.
func (c *Consumer) throughOutages(ctx context.Context, call func() error) (unsure bool, err error) {
	pause := retryBackoff()
	for {
		if err = call(); err == nil || isDone(c.stopping) || !isOutage(err) || ctx.Err() != nil {
			return unsure, err
		}
		unsure = unsure || errors.Is(err, ErrOutcomeUnknown)
		if err := pause.wait(ctx, c.stopping); err != nil {
			return unsure, err
		}
	}
}

func (c *Consumer) forget(receipt string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.held, receipt)
}

func (c *Consumer) ack(ctx context.Context, d *Delivery) (bool, error) {
	defer c.forget(d.Receipt)
	if err := ctx.Err(); err != nil {
		return false, err
	}
	told := make(chan ackOutcome, 1)
	c.mu.Lock()
	c.acks = append(c.acks, pendingAck{d.Receipt, told})
	if c.acking == nil {
		c.acking = make(chan struct{})
		go c.sendAcks()
	}
	c.mu.Unlock()
	select {
	case found := <-told:
		return found.ok, found.err
	case <-ctx.Done():
		if c.takeBack(told) {
			return false, ctx.Err()
		}
		return false, &failure{ErrOutcomeUnknown, "the acknowledgement is on its way", ctx.Err()}
	}
}

// takeBack removes an acknowledgement that no request has taken yet, and reports whether it was there.
func (c *Consumer) takeBack(told chan ackOutcome) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := len(c.acks)
	// A copy: the batch under way may share the array.
	c.acks = slices.DeleteFunc(slices.Clone(c.acks), func(one pendingAck) bool { return one.told == told })
	return len(c.acks) < before
}

// sendAcks sends acknowledgements, one request after the other, until none is left. A lone one waits for
// nobody: requests grow by themselves while the one before is under way.
func (c *Consumer) sendAcks() {
	for {
		c.mu.Lock()
		batch := c.acks[:min(len(c.acks), receiptsMost)]
		c.acks = c.acks[len(batch):]
		if len(batch) == 0 {
			announce(&c.acking)
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
		receipts := make([]string, len(batch))
		for n, one := range batch {
			receipts[n] = one.receipt
		}
		var settled Settled
		unsure, err := c.throughOutages(context.Background(), func() (err error) {
			settled, err = c.group.Ack(context.Background(), receipts...)
			return err
		})
		stale := map[string]int{}
		for _, one := range settled.StaleReceipts {
			stale[one]++
		}
		for _, one := range slices.Backward(batch) { // of those that stand there twice the first was in time
			isStale := stale[one.receipt] > 0
			if isStale {
				stale[one.receipt]--
			}
			switch {
			case err != nil:
				one.told <- ackOutcome{false, err}
			case isStale && unsure:
				one.told <- ackOutcome{false, &failure{kind: ErrOutcomeUnknown, said: "the connection broke under the acknowledgement, and the node has the message no longer: it was in time, or it was not"}}
			case isStale:
				c.mu.Lock()
				c.stale++
				c.mu.Unlock()
				one.told <- ackOutcome{}
			default:
				one.told <- ackOutcome{true, nil}
			}
		}
	}
}

func (c *Consumer) done(ctx context.Context, d *Delivery, script string, params Params) (answer *Answer, ok bool, err error) {
	_, err = c.throughOutages(ctx, func() (err error) {
		answer, ok, err = c.group.done(ctx, d, script, params)
		return err
	})
	if err == nil {
		c.forget(d.Receipt)
	}
	return answer, ok, err
}

func (c *Consumer) settle(ctx context.Context, d *Delivery, op, done string, fields ...field) (bool, error) {
	if op != "extend" {
		c.forget(d.Receipt)
		return c.single.settle(ctx, d, op, done, fields...)
	}
	by, _ := fields[0].value.(time.Duration)
	c.extendedByHand(d.Receipt, time.Now().Add(by))
	ok, err := c.single.settle(ctx, d, op, done, fields...)
	if err != nil {
		c.extendedByHand(d.Receipt, time.Time{}) // it may not have been
	}
	return ok, err
}

func (c *Consumer) extendedByHand(receipt string, until time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, held := c.held[receipt]; held {
		c.held[receipt] = until
	}
}

// Stop stops taking messages, waits for the acknowledgements in flight, and returns prefetched messages
// to the group. Iterations end. Stopping twice is safe.
func (c *Consumer) Stop(ctx context.Context) error {
	c.begin.Do(func() {}) // nothing is begun any more
	c.mu.Lock()
	if !c.stopped {
		c.stopped = true
		close(c.stopping)
	}
	announce(&c.changed)
	c.mu.Unlock()
	ended := make(chan struct{})
	go func() { // for as long as a TAKE is under way, which ends with its connection at the latest
		c.work.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-ctx.Done():
		return ctx.Err()
	}
	c.mu.Lock()
	acking := c.acking
	back := c.ready
	c.ready = nil
	c.mu.Unlock()
	if acking != nil {
		select {
		case <-acking:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	for some := range slices.Chunk(back, receiptsMost) {
		receipts := make([]string, len(some))
		for n, one := range some {
			receipts[n] = one.Receipt
		}
		if _, err := c.group.Nack(ctx, receipts, RetryAfter(0), Because(givenBack)); err != nil {
			return err
		}
	}
	return nil
}

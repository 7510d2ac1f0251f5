# The tenth part of otp_oracle.txt: GenStage. Neither Debian nor PyPI nor npm has it: get lib/gen_stage.ex and what is in
# lib/gen_stage of https://github.com/elixir-lang/gen_stage, compile that with elixirc into a folder, and run this with
# `elixir -pa FOLDER otp_oracle_stages.exs`. It was asked of gen_stage.ex at commit 254e237, with demand_dispatcher.ex at
# ea5d234, broadcast_dispatcher.ex at 1c703ac, buffer.ex at 2d3dd2e and utils.ex at 1011a3d. Every line it prints is `what was done: what GenStage did`.
:logger.set_primary_config(:level, :none)
Process.flag(:trap_exit, true)
say = fn what, x -> IO.puts("stage: #{what}: #{inspect(x, charlists: :as_lists)}") end
defmodule Numbers do
  def init({test, opts}), do: {:producer, {test, 0}, opts}
  def handle_demand(n, {test, at}), do: (send(test, {:asked, n}); {:noreply, Enum.to_list(at..(at + n - 1)), {test, at + n}})
end
defmodule Tap do
  def init({test, opts}), do: {:producer, test, opts}
  def handle_demand(n, test), do: (send(test, {:asked, n}); {:noreply, [], test})
  def handle_cast(events, test), do: {:noreply, events, test}
end
defmodule Times do
  def init(times), do: {:producer_consumer, times}
  def handle_events(events, _, times), do: {:noreply, Enum.flat_map(events, &List.duplicate(&1, times)), times}
end
defmodule Sink do
  def init({test, name, how}), do: {:consumer, {test, name, how}}
  def handle_subscribe(:producer, _, from, {test, name, how}), do: (send(test, {:from, name, from}); {how, {test, name, how}})
  def handle_cancel(why, _, {test, name, how}), do: (send(test, {:told, name, why}); {:noreply, [], {test, name, how}})
  def handle_events(events, _, {test, name, how}), do: (send(test, {:batch, name, events}); {:noreply, [], {test, name, how}})
end
defmodule Slow do
  def init({test, batches}), do: {:consumer, {test, batches}}
  def handle_events(events, _, {test, left}) do
    send(test, {:batch, :slow, events})
    if left == 1, do: Process.sleep(:infinity), else: {:noreply, [], {test, left - 1}}
  end
end
me = self()
start = fn mod, arg -> {:ok, p} = GenStage.start_link(mod, arg); p end
sink = fn name, how -> start.(Sink, {me, name, how}) end
sub = fn c, p, opts -> GenStage.sync_subscribe(c, [to: p] ++ opts) end
batches = fn f, name -> receive do {:batch, ^name, e} -> [e | f.(f, name)] after 40 -> [] end end
events = fn name -> Enum.concat(batches.(batches, name)) end
asked = fn f -> receive do {:asked, n} -> [n | f.(f)] after 40 -> [] end end
told = fn name -> receive do {:told, ^name, why} -> why after 100 -> :none end end
from = fn name -> receive do {:from, ^name, from} -> from after 100 -> :none end end
ended = fn p -> receive do {:EXIT, ^p, why} -> why after 60 -> :alive end end

for {what, opts} <- [{"10", [max_demand: 10]}, {"10 and 0", [max_demand: 10, min_demand: 0]}, {"10 and 8", [max_demand: 10, min_demand: 8]}, {"1", [max_demand: 1]}, {"3", [max_demand: 3]}] do
  p = start.(Numbers, {me, []})
  c = start.(Slow, {me, 4})
  sub.(c, p, opts)
  got = batches.(batches, :slow)
  say.("max_demand and min_demand #{what}: the first four batches", got)
  say.("max_demand and min_demand #{what}: what was asked for by then", asked.(asked))
end
p = start.(Tap, {me, []})
GenServer.cast(p, [1, 2, 3])
say.("events without demand wait: how many", GenStage.estimate_buffered_count(p))
sub.(sink.(:a, :automatic), p, max_demand: 10)
say.("events without demand wait: what the consumer gets", events.(:a))
say.("events without demand wait: what is asked for then", asked.(asked))
for keep <- [:last, :first] do
  p = start.(Tap, {me, [buffer_size: 3, buffer_keep: keep]})
  GenServer.cast(p, [1, 2, 3, 4]); GenServer.cast(p, [5])
  sub.(sink.(keep, :automatic), p, max_demand: 10)
  say.("a buffer of three that keeps the #{keep}", events.(keep))
end
p = start.(Tap, {me, []})
GenServer.cast(p, [1, 2, 3, 4, 5])
c = sink.(:m, :manual)
sub.(c, p, [])
say.("manual demand: before it asks", events.(:m))
{pid, ref} = from.(:m)
send(pid, {:"$gen_producer", {c, ref}, {:ask, 2}})
say.("manual demand: it asks for two", events.(:m))
asked.(asked)
for policy <- [:permanent, :transient, :temporary] do
  for {what, why} <- [{"is cancelled as normal", :normal}, {"is cancelled as shutdown", :shutdown}, {"is cancelled for another reason", :boom}] do
    p = start.(Tap, {me, []}); c = sink.(:a, :automatic)
    {:ok, ref} = sub.(c, p, cancel: policy)
    send(p, {:"$gen_producer", {c, ref}, {:cancel, why}})
    say.("a #{policy} subscription #{what}: what the consumer is told", told.(:a))
    say.("a #{policy} subscription #{what}: its consumer", ended.(c))
  end
  for {what, why} <- [{"ends as normal", :normal}, {"crashes", :boom}] do
    p = start.(Tap, {me, []}); c = sink.(:a, :automatic)
    sub.(c, p, cancel: policy)
    GenServer.stop(p, why); ended.(p)
    say.("the producer of a #{policy} subscription #{what}: what the consumer is told", told.(:a))
    say.("the producer of a #{policy} subscription #{what}: the consumer", ended.(c))
  end
end
gone = start.(Tap, {me, []}); GenServer.stop(gone); ended.(gone)
for policy <- [:permanent, :transient, :temporary] do
  c = sink.(:nobody, :automatic)
  sub.(c, gone, cancel: policy)
  say.("a #{policy} subscription to nobody: the consumer", ended.(c))
end
asked.(asked)
p = start.(Tap, {me, []})
sub.(sink.(:a, :automatic), p, max_demand: 10); sub.(sink.(:b, :automatic), p, max_demand: 10)
GenServer.cast(p, Enum.to_list(1..15))
say.("15 events for two that want 10 each", {events.(:a), events.(:b)})
asked.(asked)
p = start.(Tap, {me, []})
a = sink.(:a, :automatic)
sub.(a, p, max_demand: 10, cancel: :temporary)
say.("a consumer that is killed: what was asked for", asked.(asked))
Process.exit(a, :kill); ended.(a)
sub.(sink.(:b, :automatic), p, max_demand: 10)
say.("a consumer that is killed: what is asked for by the next one", asked.(asked))
b = fn opts -> start.(Tap, {me, [dispatcher: GenStage.BroadcastDispatcher] ++ opts}) end
p = b.([])
c = sink.(:m, :manual)
sub.(c, p, cancel: :temporary)
{pid, ref} = from.(:m)
send(pid, {:"$gen_producer", {c, ref}, {:ask, 2}})
sub.(sink.(:a, :automatic), p, max_demand: 10)
GenServer.cast(p, [1, 2, 3, 4, 5])
say.("broadcast to one that wants 10 and one that wants two", {events.(:a), events.(:m)})
say.("broadcast: what is asked for", asked.(asked))
send(pid, {:"$gen_producer", {c, ref}, {:cancel, :normal}})
say.("broadcast: the one that wants two goes, what the other one gets", events.(:a))
p = b.([])
sub.(sink.(:a, :automatic), p, max_demand: 10, selector: &(rem(&1, 2) == 0)); sub.(sink.(:b, :automatic), p, max_demand: 10)
GenServer.cast(p, [1, 2, 3, 4, 5])
say.("broadcast with a selector to one of two", {events.(:a), events.(:b)})
p = b.([])
c = sink.(:twice, :automatic)
sub.(c, p, []); sub.(c, p, [])
say.("broadcast to the same consumer twice: what it is told", told.(:twice))
say.("broadcast to the same consumer twice: the consumer", ended.(c))
asked.(asked)
p = start.(Numbers, {me, [demand: :accumulate]})
sub.(sink.(:a, :automatic), p, max_demand: 4)
say.("demand that accumulates: what is asked for", asked.(asked))
say.("demand that accumulates: the mode", GenServer.call(p, :"$demand"))
p = start.(Tap, {me, [demand: :accumulate]})
sub.(sink.(:a, :automatic), p, max_demand: 4)
GenStage.demand(p, :forward)
say.("demand that accumulates and is forwarded then: what is asked for", asked.(asked))
p = start.(Tap, {me, []}); t = start.(Times, 2); c = sink.(:a, :automatic)
sub.(c, t, max_demand: 3); sub.(t, p, max_demand: 4)
GenServer.cast(p, [1, 2, 3])
say.("one in the middle that emits each twice", events.(:a))
say.("one in the middle that emits each twice: what is asked for", asked.(asked))
for policy <- [:temporary, :permanent] do
  p = start.(Tap, {me, []}); c = sink.(:a, :automatic)
  {:ok, ref} = sub.(c, p, max_demand: 10, cancel: policy)
  GenServer.cast(p, [1, 2, 3])
  GenStage.sync_resubscribe(c, ref, :normal, to: p, max_demand: 10, cancel: policy)
  GenServer.cast(p, [4, 5, 6])
  say.("a #{policy} subscription is resubscribed: what the consumer gets", if(policy == :temporary, do: events.(:a), else: Enum.take(events.(:a), 3)))
  say.("a #{policy} subscription is resubscribed: the consumer", ended.(c))
end

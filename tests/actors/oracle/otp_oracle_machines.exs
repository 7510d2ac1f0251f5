# The ninth part of otp_oracle.txt: what the scripts of ../machines do not ask of gen_statem. Run it with
# `elixir otp_oracle_machines.exs`. Every line it prints is `what was done: what gen_statem did`.
:logger.set_primary_config(:level, :none)
say = fn what, x -> IO.puts("statem: #{what}: #{inspect(x)}") end
defmodule Scripted do
  # Does what it is given: init a function, and then each cast and call one.
  @behaviour :gen_statem
  def callback_mode, do: :handle_event_function
  def init(f), do: f.()
  def handle_event({:call, from}, :"?", state, data), do: {:keep_state_and_data, {:reply, from, {state, data}}}
  def handle_event({:call, from}, f, _, _) when is_function(f), do: f.(from)
  def handle_event(:cast, f, _, _) when is_function(f), do: f.()
  def handle_event(type, content, _, data), do: {:keep_state, data ++ [named(type, content)]}
  def terminate(reason, state, _data) do
    if Process.whereis(:told), do: send(:told, {:terminated, reason, state})
    :ok
  end
  def format_status(status), do: (send(:told, {:status, status}); status)
  defp named({:call, _}, content), do: {:call, content}
  defp named({:timeout, name}, content), do: {name, content}
  defp named(type, content), do: {type, content}
end
defmodule Entering do
  @behaviour :gen_statem
  def callback_mode, do: [:handle_event_function, :state_enter]
  def init(f), do: {:ok, :a, f}
  def handle_event(:enter, _, _, f), do: f.()
  def handle_event({:call, from}, _, state, _), do: {:keep_state_and_data, {:reply, from, state}}
end
Process.register(self(), :told); Process.flag(:trap_exit, true)
flush = fn -> Stream.repeatedly(fn -> receive do {:status, _} -> :skip; m -> m after 30 -> nil end end) |> Enum.take_while(&(&1 != nil)) |> Enum.reject(&(&1 == :skip)) end
reason = fn {%e{}, _} -> {:raised, e}; {r, s} when is_list(s) -> r; r -> r end
began = fn f -> r = :gen_statem.start_link(Scripted, f, []); (case r do {:error, e} -> {:error, reason.(e)}; {:ok, _} -> :ok; r -> r end) end
start = fn state -> {:ok, p} = :gen_statem.start_link(Scripted, fn -> {:ok, state, []} end, []); p end
ask = fn p -> :gen_statem.call(p, :"?") end
how = fn p, f -> m = Process.monitor(p); f.(p); r = (receive do {:DOWN, ^m, _, _, r} -> reason.(r) after 500 -> :lives end); flush.(); r end
cast = fn p, f -> :gen_statem.cast(p, f) end
tr = fn f -> try do f.() catch :exit, {r, _} -> {:exit, reason.(r)}; :exit, r -> {:exit, r} end end

# How it begins
say.("init stops", began.(fn -> {:stop, :cfg} end))
say.("init ignores", began.(fn -> :ignore end))
say.("init raises", began.(fn -> raise "boom" end))
say.("init returns nonsense", (case began.(fn -> :nonsense end) do {:error, {_, it}} -> {:error, it} end))
flush.()
{:ok, p} = :gen_statem.start_link(Scripted, fn -> send(self(), :early); {:ok, :a, [], [{:next_event, :internal, :one}, {:next_event, :internal, :two}, {:state_timeout, 0, :now}]} end, [])
say.("actions of init, and a message from before", ask.(p))
{:ok, p} = :gen_statem.start_link(Scripted, fn -> {:ok, :a, [], [:postpone, :hibernate]} end, [])
say.("init with postpone and hibernate", ask.(p))

# How it ends
say.("result stop", how.(start.(:a), fn p -> cast.(p, fn -> :stop end) end))
say.("result stop with a reason", how.(start.(:a), fn p -> cast.(p, fn -> {:stop, :boom} end) end))
say.("a callback raises", how.(start.(:a), fn p -> cast.(p, fn -> raise "boom" end) end))
p = start.(:a); cast.(p, fn -> {:stop, :shutdown, [1]} end)
say.("what is told of result stop with a reason", flush.() |> Enum.filter(&match?({:terminated, _, _}, &1)))
p = start.(:a)
say.("result stop_and_reply: what its caller gets", tr.(fn -> :gen_statem.call(p, fn from -> {:stop_and_reply, :normal, [{:reply, from, :bye}]} end) end)); flush.()
p = start.(:a)
say.("result stop without a reply: what its caller gets", tr.(fn -> :gen_statem.call(p, fn _ -> {:stop, :boom} end) end)); flush.()
p = start.(:a); t = Task.async(fn -> tr.(fn -> :gen_statem.call(p, fn _ -> {:keep_state_and_data, :postpone} end) end) end); Process.sleep(20)
say.("it ends while a call is postponed: what its caller gets", (cast.(p, fn -> {:stop, :boom} end); Task.await(t))); flush.()
p = start.(:a)
say.("stop from outside, and what is told", {:gen_statem.stop(p), flush.() |> Enum.filter(&match?({:terminated, _, _}, &1))})
say.("stop from outside of one that has ended", tr.(fn -> :gen_statem.stop(p) end))
say.("call of one that has ended", tr.(fn -> :gen_statem.call(p, :"?") end))
say.("cast to one that has ended", :gen_statem.cast(p, :x))
bad = fn f -> case how.(start.(:a), fn p -> cast.(p, f) end) do {kind, it} when is_atom(kind) -> {:names, it}; r -> r end end
say.("a result that means nothing", bad.(fn -> :nonsense end))
say.("an action that means nothing", bad.(fn -> {:keep_state_and_data, [:nonsense]} end))
say.("an event of an unknown kind is inserted", (case bad.(fn -> {:keep_state_and_data, [{:next_event, :nonsense, 1}]} end) do {:names, _} -> :ends; r -> r end))
say.("an enter call is inserted", (case bad.(fn -> {:keep_state_and_data, [{:next_event, :enter, :a}]} end) do {:names, _} -> :ends; r -> r end))
enter = fn f -> {:ok, p} = :gen_statem.start(Entering, f, []); m = Process.monitor(p); receive do {:DOWN, ^m, _, _, :noproc} -> :ended; {:DOWN, ^m, _, _, r} -> (case reason.(r) do {kind, it} when is_atom(kind) -> {:names, it}; r -> r end) after 100 -> :gen_statem.call(p, :x) end end
say.("the first enter call goes on to another state", (case enter.(fn -> Process.sleep(20); {:next_state, :b, 1} end) do {:names, {:next_state, state, _}} -> state end))
say.("the first enter call postpones", enter.(fn -> Process.sleep(20); {:keep_state_and_data, :postpone} end))
say.("the first enter call inserts an event", (case enter.(fn -> Process.sleep(20); {:keep_state_and_data, {:next_event, :internal, 1}} end) do {:names, _} -> :ends end))
say.("the first enter call stops", enter.(fn -> Process.sleep(20); {:stop, :boom} end))
say.("the first enter call goes on to the same state", enter.(fn -> {:next_state, :a, 1} end))
say.("an EXIT of another, trapping", (p = start.(:a); cast.(p, fn -> Process.flag(:trap_exit, true); :keep_state_and_data end); ask.(p); q = spawn(fn -> Process.link(p); exit(:boom) end); Process.sleep(30); {_, [{:info, {:EXIT, ^q, r}}]} = ask.(p); r))
say.("the parent ends it, trapping: what is told", (p = start.(:a); cast.(p, fn -> Process.flag(:trap_exit, true); :keep_state_and_data end); ask.(p); flush.(); Process.exit(p, :shutdown); flush.() |> Enum.filter(&match?({:terminated, _, _}, &1))))

# Events
p = start.(:a); cast.(p, fn -> send(self(), :message); {:keep_state_and_data, {:state_timeout, 0, :x}} end); Process.sleep(30)
say.("a timeout of no time and a message that has come", ask.(p) |> elem(1))
p = start.(:a); cast.(p, fn -> send(self(), :message); {:keep_state_and_data, {:state_timeout, :erlang.monotonic_time(:millisecond) - 5, :x, {:abs, true}}} end); Process.sleep(30)
say.("an absolute timeout of the past and a message that has come", ask.(p) |> elem(1))
p = start.(:a); cast.(p, fn -> {:keep_state_and_data, [{:state_timeout, 30, :x}, {{:timeout, :t}, 30, :y}]} end); cast.(p, fn -> {:keep_state_and_data, [{:state_timeout, :infinity, :x}, {{:timeout, :t}, :infinity, :y}]} end); Process.sleep(80)
say.("timeouts that run and are started anew for ever", ask.(p) |> elem(1))
p = start.(:a); cast.(p, fn -> {:keep_state_and_data, [{:state_timeout, :infinity, :x}]} end); cast.(p, fn -> {:keep_state_and_data, [{:state_timeout, :update, :y}]} end)
say.("a timeout that was started for ever is updated", ask.(p) |> elem(1))
p = start.(:a); cast.(p, fn -> {:keep_state_and_data, [{:state_timeout, 20, :x}]} end); :sys.suspend(p); Process.sleep(60); cast.(p, :later)
say.("a timeout whose time is over while it is suspended", (:sys.resume(p); ask.(p) |> elem(1)))
kept = fn from, to -> p = start.(from); cast.(p, fn -> {:keep_state_and_data, {:state_timeout, 30, :kept}} end); cast.(p, fn -> {:next_state, to, []} end); Process.sleep(60); ask.(p) |> elem(1) end
say.("state 1 becomes 1.0: its timeout", kept.(1, 1.0))
say.("state {:at, 1} becomes {:at, 1.0}: its timeout", kept.({:at, 1}, {:at, 1.0}))
say.("state {:at, 1} becomes {:at, 1}: its timeout", kept.({:at, 1}, {:at, 1}))
p = start.(:a); cast.(p, fn -> {:keep_state_and_data, [{:next_event, :state_timeout, :x}, {:next_event, {:timeout, :t}, :y}, {:next_event, :timeout, :z}, {:next_event, :info, :w}]} end)
say.("timeouts and messages that are inserted as events", ask.(p) |> elem(1))
p = start.(:a)
say.("a call that is inserted as an event, and answered there", :gen_statem.call(p, fn from -> {:keep_state_and_data, {:next_event, {:call, from}, fn again -> {:keep_state_and_data, {:reply, again, :answered}} end}} end))
p = start.(:a)
say.("answered twice: what its caller gets", :gen_statem.call(p, fn from -> {:keep_state_and_data, [{:reply, from, 1}, {:reply, from, 2}]} end)); flush.()
say.("answered by another process", :gen_statem.call(p, fn from -> spawn(fn -> :gen_statem.reply(from, :other) end); :keep_state_and_data end))
say.("a call that times out, and what is left when it is answered", {tr.(fn -> :gen_statem.call(p, fn from -> spawn(fn -> Process.sleep(20); :gen_statem.reply(from, :late) end); :keep_state_and_data end, 5) end), flush.()})

# sys
p = start.(:a)
say.("get_state", :sys.get_state(p))
say.("replace_state", :sys.replace_state(p, fn {_, d} -> {:b, d ++ [1]} end))
p = start.(:a); cast.(p, fn -> {:keep_state_and_data, :postpone} end); cast.(p, fn -> {:keep_state_and_data, {:state_timeout, 30, :kept}} end)
:sys.replace_state(p, fn {_, d} -> {:b, d} end); Process.sleep(60)
say.("the state is replaced: what its timeout and the postponed do", ask.(p))
p = start.(:a); for n <- [1, 2] do :gen_statem.cast(p, n) end; ask.(p)
cast.(p, fn -> {:keep_state_and_data, [:postpone, {{:timeout, :t}, 10_000, :x}, {:state_timeout, 10_000, :y}]} end); ask.(p); flush.()
:sys.get_status(p)
status = receive do {:status, s} -> s after 100 -> :none end
say.("what a status tells", Enum.sort(Map.keys(status)) -- [:log])
say.("what a status tells of postponed events and timeouts", {length(status.postponed), Enum.sort(status.timeouts)})
p = start.(:a); cast.(p, fn -> {:keep_state_and_data, :hibernate} end); Process.sleep(20)
say.("hibernated, and then called", ask.(p))

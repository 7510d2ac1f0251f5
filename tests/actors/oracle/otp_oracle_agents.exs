# The third part of otp_oracle.txt: agents, tasks that nobody owns, and how tasks are shut down.
# Run it with `elixir otp_oracle_agents.exs`. Every line it prints is `what was done: what Elixir did`.
Logger.configure(level: :emergency)
:logger.set_primary_config(:level, :emergency)
flush = fn -> Stream.repeatedly(fn -> receive do m -> m after 30 -> nil end end) |> Enum.take_while(&(&1 != nil)) end
reason = fn
  {%{__struct__: _} = e, st} when is_list(st) -> {e, :stacktrace}
  {{a, b}, st} when is_list(st) -> {{a, b}, :stacktrace}
  other -> other
end
tr = fn f -> try do {:ret, f.()} catch :exit, {r, {GenServer, _, _}} -> {:exit, reason.(r)}; k, r -> {k, r} end end
say = fn what, x -> IO.puts("#{what}: #{inspect(x)}") end
start = fn f -> {:ok, a} = Agent.start(f); a end

a = start.(fn -> 1 end)
say.("agent: get", Agent.get(a, &(&1 + 10)))
say.("agent: update answers, and then get", {Agent.update(a, &(&1 + 1)), Agent.get(a, & &1)})
say.("agent: get_and_update answers, and then get", {Agent.get_and_update(a, fn s -> {:old, s + 1} end), Agent.get(a, & &1)})
say.("agent: cast answers, and then get", {Agent.cast(a, &(&1 * 10)), Agent.get(a, & &1)})
say.("agent: a slow update, and a get that times out, alive", {tr.(fn -> Agent.cast(a, fn s -> Process.sleep(100); s + 1 end); Agent.get(a, & &1, 10) end) |> elem(0), Process.alive?(a)})
say.("agent: and then get", Agent.get(a, & &1))
say.("agent: stop", {Agent.stop(a), Process.alive?(a)})
say.("agent: get of one that has ended", tr.(fn -> Agent.get(a, & &1) end))
a = start.(fn -> 1 end)
say.("agent: a function of get that raises, alive", {tr.(fn -> Agent.get(a, fn _ -> raise "boom" end) end), Process.alive?(a)})
a = start.(fn -> 1 end)
say.("agent: get_and_update returns nonsense", tr.(fn -> Agent.get_and_update(a, fn _ -> :nonsense end) end))
a = start.(fn -> 1 end)
Agent.cast(a, fn _ -> raise "boom" end); Process.sleep(20)
say.("agent: a function of cast that raises, alive", Process.alive?(a))
say.("agent: the first function raises", (case Agent.start(fn -> raise "boom" end) do {:error, r} -> {:error, reason.(r)} end))

{:ok, p} = Task.start(fn -> raise "boom" end); Process.sleep(20)
say.("Task.start that raises: alive, and what its starter is told", {Process.alive?(p), flush.()})
Process.flag(:trap_exit, true)
{:ok, p} = Task.start_link(fn -> exit(:boom) end)
say.("Task.start_link that exits: what its trapping starter is told", (for {:EXIT, ^p, r} <- flush.(), do: {:EXIT, r}))
{:ok, p} = Task.start_link(fn -> :fine end)
say.("Task.start_link that returns: what its trapping starter is told", (for {:EXIT, ^p, r} <- flush.(), do: {:EXIT, r}))
Process.flag(:trap_exit, false); flush.()

{:ok, sup} = Task.Supervisor.start_link()
nolink = fn f -> Task.Supervisor.async_nolink(sup, f) end
t = nolink.(fn -> 42 end); Process.sleep(20)
say.("Task.shutdown of one that has returned", {Task.shutdown(t), flush.()})
t = nolink.(fn -> exit(:boom) end); Process.sleep(20)
say.("Task.shutdown of one that has crashed", {Task.shutdown(t), flush.()})
t = nolink.(fn -> Process.sleep(:infinity) end)
say.("Task.shutdown of one that runs", {Task.shutdown(t), flush.()})
t = nolink.(fn -> Process.sleep(:infinity) end)
say.("Task.shutdown of one that runs, brutally", {Task.shutdown(t, :brutal_kill), flush.()})
t = nolink.(fn -> Process.flag(:trap_exit, true); receive do {:EXIT, _, :shutdown} -> 43 end end); Process.sleep(20)
say.("Task.shutdown of one that returns a value then", {Task.shutdown(t), flush.()})
t = nolink.(fn -> Process.flag(:trap_exit, true); receive do {:EXIT, _, :shutdown} -> exit(:boom) end end); Process.sleep(20)
say.("Task.shutdown of one that crashes then", {Task.shutdown(t), flush.()})
t = nolink.(fn -> Process.flag(:trap_exit, true); Process.sleep(:infinity) end); Process.sleep(20)
say.("Task.shutdown of one that ignores it for longer than its time", {Task.shutdown(t, 30), flush.()})
t = nolink.(fn -> Process.sleep(:infinity) end)
spawn(fn -> Process.sleep(30); Process.exit(t.pid, :kill) end)
say.("Task.yield of one that somebody kills", {Task.yield(t, 500), flush.()})
t = nolink.(fn -> Process.sleep(:infinity) end); Process.exit(t.pid, :kill); Process.sleep(20)
say.("Task.shutdown of one that somebody has killed", {Task.shutdown(t), flush.()})
t = nolink.(fn -> Process.sleep(:infinity) end); Process.exit(t.pid, :shutdown); Process.sleep(20)
say.("Task.shutdown of one that somebody has shut down", {Task.shutdown(t), flush.()})
t = nolink.(fn -> Process.sleep(:infinity) end); Process.exit(t.pid, :kill); Process.sleep(20)
say.("Task.shutdown, brutally, of one that somebody has killed", {Task.shutdown(t, :brutal_kill), flush.()})
t = nolink.(fn -> Process.sleep(:infinity) end); Process.exit(t.pid, :shutdown); Process.sleep(20)
say.("Task.shutdown, brutally, of one that somebody has shut down", {Task.shutdown(t, :brutal_kill), flush.()})

# What `shutdown:` of a task means when its supervisor ends
ended = fn shutdown, work ->
  {:ok, sup} = Task.Supervisor.start_link()
  t = Task.Supervisor.async_nolink(sup, work, shutdown: shutdown)
  Process.sleep(20); Supervisor.stop(sup)
  receive do {:DOWN, r, _, _, reason} when r == t.ref -> reason; {r, value} when r == t.ref -> {:value, value} after 500 -> :none end
end
tidy = fn takes -> fn -> Process.flag(:trap_exit, true); receive do {:EXIT, _, :shutdown} -> Process.sleep(takes); exit(:tidy) end end end
say.("Task with a shutdown of 2 s that needs 30 ms, its supervisor ends", ended.(2000, tidy.(30)))
say.("Task with a shutdown of 20 ms that needs 200 ms, its supervisor ends", ended.(20, tidy.(200)))
say.("Task with a shutdown of :brutal_kill, its supervisor ends", ended.(:brutal_kill, tidy.(30)))
say.("Task with a shutdown that traps no exits, its supervisor ends", ended.(200, fn -> Process.sleep(:infinity) end))

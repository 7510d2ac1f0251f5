# The seventh part of otp_oracle.txt: timers, registries and partitions.
# Run it with `elixir otp_oracle_registries.exs`. Every line it prints is `what was done: what Elixir did`.
:logger.set_primary_config(:level, :none)
say = fn what, x -> IO.puts("#{what}: #{inspect(x)}") end
flush = fn -> Stream.repeatedly(fn -> receive do m -> m after 30 -> nil end end) |> Enum.take_while(&(&1 != nil)) end

# Timers
t = Process.send_after(self(), :due, 10_000)
say.("timer: read of one that runs is a time", is_integer(Process.read_timer(t)))
say.("timer: cancel of one that runs is a time", is_integer(Process.cancel_timer(t)))
say.("timer: read of one that was cancelled", Process.read_timer(t))
say.("timer: cancel of one that was cancelled", Process.cancel_timer(t))
t = Process.send_after(self(), :due, 10); Process.sleep(50)
say.("timer: read and cancel of one that has fired, and what it brought", {Process.read_timer(t), Process.cancel_timer(t), flush.()})
p = spawn(fn -> Process.sleep(:infinity) end); t = Process.send_after(p, :due, 10_000); Process.exit(p, :kill); Process.sleep(20)
say.("timer: whether one for a process that has ended runs on", is_integer(Process.read_timer(t)))

# Registries
{:ok, _} = Registry.start_link(keys: :unique, name: U)
{:ok, _} = Registry.start_link(keys: :duplicate, name: D)
other = fn f -> Task.await(Task.async(f)) end
me = self()
mine = fn list -> Enum.map(list, fn {pid, v} -> {pid == me, v} end) end
{:ok, _} = Registry.register(U, :a, 1)
say.("registry, unique: lookup", mine.(Registry.lookup(U, :a)))
say.("registry, unique: lookup of a key that nobody has", Registry.lookup(U, :b))
say.("registry, unique: update_value", Registry.update_value(U, :a, &(&1 + 1)))
say.("registry, unique: update_value by another", other.(fn -> Registry.update_value(U, :a, &(&1 + 1)) end))
say.("registry, unique: unregister by another, and lookup", {other.(fn -> Registry.unregister(U, :a) end), mine.(Registry.lookup(U, :a))})
{:ok, _} = Registry.register(U, :c, 3)
say.("registry, unique: keys of an owner", Enum.sort(Registry.keys(U, self())))
say.("registry, unique: count", Registry.count(U))
say.("registry, unique: unregister, and keys", {Registry.unregister(U, :a), Registry.keys(U, self())})
{:ok, _} = Registry.register(U, 1, :int); {:ok, _} = Registry.register(U, 1.0, :float)
say.("registry, unique: values of 1 and of 1.0", {Registry.values(U, 1, self()), Registry.values(U, 1.0, self())})
say.("registry, unique: values for one that is not the owner", Registry.values(U, 1, spawn(fn -> :ok end)))
for v <- [1, 2] do {:ok, _} = Registry.register(D, :topic, v) end
t = Task.async(fn -> {:ok, _} = Registry.register(D, :topic, 3); send(me, :in); receive do :stop -> :ok end end)
receive do :in -> :ok end
say.("registry, duplicate: values of all", Enum.sort(for {_, v} <- Registry.lookup(D, :topic), do: v))
say.("registry, duplicate: values of one owner", Enum.sort(Registry.values(D, :topic, self())))
say.("registry, duplicate: keys of an owner", Registry.keys(D, self()))
say.("registry, duplicate: match", Registry.match(D, :topic, 2) |> mine.())
say.("registry, duplicate: update_value", (try do Registry.update_value(D, :topic, & &1) rescue ArgumentError -> :raises end))
say.("registry, duplicate: unregister_match, and values of all", {Registry.unregister_match(D, :topic, 2), Enum.sort(for {_, v} <- Registry.lookup(D, :topic), do: v)})
Registry.dispatch(D, :topic, fn entries -> for {pid, v} <- entries, pid == me, do: send(pid, {:said, v}) end)
say.("registry, duplicate: dispatch, and what came", flush.())
say.("registry, duplicate: whether dispatch calls for a key that nobody has", (Registry.dispatch(D, :none, fn _ -> send(me, :called) end); flush.()))
send(t.pid, :stop); Task.await(t); Process.sleep(30)
say.("registry, duplicate: values of all after an owner ended", for({_, v} <- Registry.lookup(D, :topic), do: v))
{:ok, _} = Registry.register(D, :topic, 4)
say.("registry, duplicate: unregister, and count", {Registry.unregister(D, :topic), Registry.count(D)})
say.("registry: meta that is not there, put, and there", {Registry.meta(U, :k), Registry.put_meta(U, :k, 1), Registry.meta(U, :k)})
say.("registry: delete_meta, and meta", {Registry.delete_meta(U, :k), Registry.meta(U, :k)})

# Partitions
{:ok, _} = PartitionSupervisor.start_link(child_spec: Agent.child_spec(fn -> 0 end), name: P, partitions: 3)
part = fn key -> GenServer.whereis({:via, PartitionSupervisor, {P, key}}) end
at = for {n, pid, _, _} <- PartitionSupervisor.which_children(P), into: %{}, do: {pid, n}
say.("partitions: how many", PartitionSupervisor.partitions(P))
say.("partitions: those of 0, 1, 2, 3, 7, -1 and -5", for(k <- [0, 1, 2, 3, 7, -1, -5], do: at[part.(k)]))
say.("partitions: equal keys have one", part.("key") == part.("key"))
say.("partitions: count_children", (c = PartitionSupervisor.count_children(P); {c.active, c.specs, c.supervisors, c.workers}))
lost = part.(1); Process.exit(lost, :kill); Process.sleep(50)
say.("partitions: one that is killed is another, the next is the same", {part.(1) != lost, at[part.(2)] == 2})
{:ok, _} = PartitionSupervisor.start_link(child_spec: Agent.child_spec(fn -> 0 end), name: W, partitions: 2,
  with_arguments: fn [_], n -> [fn -> n * 10 end] end)
say.("partitions: states with_arguments", for(k <- [0, 1], do: Agent.get({:via, PartitionSupervisor, {W, k}}, & &1)))

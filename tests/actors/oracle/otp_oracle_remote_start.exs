# The sixth part of otp_oracle.txt: starting actors and tasks on another node. Run it with
# `elixir --sname here otp_oracle_remote_start.exs`. Every line it prints is `what was done: what Elixir did`.
:logger.set_primary_config(:level, :none)
defmodule There do
  def double(x), do: 2 * x
  def fails, do: exit(:boom)
  def waits(to) do send(to, {:runs, self()}); Process.sleep(10_000) end
  def sups do
    spawn(fn ->
      {:ok, _} = Task.Supervisor.start_link(name: :tasks)
      {:ok, _} = DynamicSupervisor.start_link(name: :children, strategy: :one_for_one)
      Process.sleep(:infinity)
    end)
    Process.sleep(200)
  end
end
{:ok, peer, there} = :peer.start(%{name: :there})
:erpc.call(there, :code, :add_paths, [:code.get_path()])
:erpc.call(there, Application, :ensure_all_started, [:elixir])
src = File.read!(__ENV__.file) |> String.split("defmodule There do") |> Enum.at(1) |> String.split("\nend\n") |> hd()
:erpc.call(there, Code, :compile_string, ["defmodule There do" <> src <> "\nend"])
:erpc.call(there, There, :sups, [])
say = fn what, x -> IO.puts("#{what}: #{inspect(x)}") end
say.("remote: await of a task on another node", Task.await(Task.Supervisor.async({:tasks, there}, There, :double, [21])))
t = Task.Supervisor.async_nolink({:tasks, there}, There, :fails, [])
say.("remote: yield of a task that fails there, and is not linked", Task.yield(t, 1000))
me = self()
pid = spawn(fn -> Task.Supervisor.async({:tasks, there}, There, :waits, [me]) |> Task.await(:infinity) end)
task = receive do {:runs, p} -> p end
Process.monitor(task); Process.exit(pid, :kill)
say.("remote: a task there when its owner here is killed", receive do {:DOWN, _, _, ^task, r} -> r after 1000 -> :alive end)
{:ok, a} = DynamicSupervisor.start_child({:children, there}, {Agent, :erlang.make_fun(:erlang, :node, 0)})
say.("remote: the state of an agent that was started there is its node", Agent.get(a, :erlang, :"=:=", [there]))
Process.monitor(a)
say.("remote: terminate_child there, and how the child ends", {DynamicSupervisor.terminate_child({:children, there}, a), receive do {:DOWN, _, _, ^a, r} -> r after 1000 -> :alive end})
say.("remote: terminate_child there of one that is no child", DynamicSupervisor.terminate_child({:children, there}, self()))

"""Pictures and tables of accounts. What shows single people is private, and says so.

spends     what people have spent of their budgets over time
odometers  running bounds of several odometers
losses     the epsilons of people, in levels
figures    how all of them are drawn, without a display
"""
